"""Placement of names next to dots, without overlapping other marks or names."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fairtrial.report.charts.frame import Frame
from fairtrial.report.charts.places import Array
from fairtrial.report.charts.style import LETTER

DOT, LINE, AIR = 5.0, 7.0, 4.0
"""In pixels: half the size of a dot, half the height of a text line, and the gap at the end of a text."""

FAR, ANGLES, ROUNDS = 110.0, 16, 3
"""Largest ring radius in pixels, positions tried per ring, and rounds of placing all names again."""

NEAR_PX, PIECES = 20.0, 10
"""Distance in pixels beyond which a name gets a leader line, and sample points on that line for collision tests."""

CROSSED, BEYOND = 30.0, 120.0
"""In pixels: the penalty for crossing a line, and how far names may extend beyond the right edge."""

Pixel = tuple[float, float]
Stretch = tuple[float, float, float, float]
"""A segment between two pixels: x, y, x, y."""


@dataclass(frozen=True)
class Label:
    """A text at a pixel offset from a dot, aligned by the direction of the offset, and the area it covers."""

    place: int
    """Index of the dot."""
    text: str
    dot: Pixel
    offset: Pixel
    box: Array
    trail: Array

    @property
    def align(self) -> str:
        return "left" if self.offset[0] > 0 else "right" if self.offset[0] < 0 else "center"

    @property
    def lead(self) -> bool:
        """Whether the text needs a leader line to its dot."""
        return math.hypot(*self.offset) > NEAR_PX

    def along(self, share: float) -> Pixel:
        """Return the point at a relative position on the way from the dot to the text."""
        return self.dot[0] + share * self.offset[0], self.dot[1] + share * self.offset[1]

    @property
    def end(self) -> Pixel:
        """The end of the leader line, just before the text."""
        return self.along(1 - (LINE if self.align == "center" else AIR / 2) / math.hypot(*self.offset))


class Room:
    """Finds positions for texts. They must not overlap dots or each other, and avoid crossing bars and lines."""

    def __init__(self, frame: Frame, dots: Sequence[Pixel], lines: Sequence[Stretch]) -> None:
        self._frame = frame
        self._dots = _boxes([dot * 2 for dot in dots], DOT)
        self._lines = _boxes(lines, 1.0)
        turns = 2 * np.pi * (np.arange(ANGLES) + 2) / ANGLES  # the upper right is tried first
        around = np.column_stack([np.cos(turns), -np.sin(turns)]).round(6)
        radii = np.arange(DOT + LINE, FAR, 2 * LINE)
        self._offsets = np.concatenate([radius * around for radius in radii])
        self._lengths = np.repeat(radii, ANGLES)

    def labels(
        self, dots: Sequence[Pixel], texts: Sequence[str], first: Sequence[bool], *, beyond: float = 0
    ) -> list[Label]:
        """Return labels for all dots that have space for one, in order of the dots. Some dots choose first.

        Labels may extend up to `beyond` pixels beyond the right edge.
        """
        placed: dict[int, Label] = {}
        for place in sorted(range(len(dots)), key=lambda place: not first[place]) * ROUNDS:
            others = [label for other, label in placed.items() if other != place]
            if label := self._best(place, dots[place], texts[place], others, beyond):
                placed[place] = label
        return [placed[place] for place in sorted(placed)]

    def _best(self, place: int, dot: Pixel, text: str, others: Sequence[Label], beyond: float) -> Label | None:
        boxes, trails = self._boxes_about(dot, text), self._trails_from(dot)
        solid = np.vstack([self._dots, *(label.box for label in others)])
        leads = np.vstack([np.empty((0, 4)), *(label.trail for label in others)])
        width, height = self._frame.width, self._frame.height
        inside = (boxes >= 0).all(1) & (boxes[:, 2:] <= (width + beyond, height)).all(1)
        crossed = _hits(boxes, np.vstack([self._lines, leads])).sum(1) + (boxes[:, 2] > width)
        crossed += _hits(trails, np.vstack([solid, leads])).any(2).sum(1)
        price = np.where(inside & ~_hits(boxes, solid).any(1), self._lengths + CROSSED * crossed, np.inf)
        best = int(np.argmin(price))
        if price[best] > FAR:
            return None
        x, y = self._offsets[best].tolist()
        return Label(place, text, dot, (x, y), boxes[best], trails[best])

    def _boxes_about(self, dot: Pixel, text: str) -> Array:
        """Return the area that the text would cover at each position."""
        width = LETTER * len(text) + AIR
        x, y = (self._offsets + dot).T
        left = x - width * (1 - np.sign(self._offsets[:, 0])) / 2
        return np.column_stack([left, y - LINE, left + width, y + LINE])

    def _trails_from(self, dot: Pixel) -> Array:
        """Return the leader line to each position as short pieces. Positions next to the dot have none."""
        begin = np.where(self._lengths > NEAR_PX, NEAR_PX / 2 / self._lengths, 1)
        shares = np.linspace(begin, np.ones_like(begin), PIECES, axis=1)
        places = dot + shares[:, :, None] * self._offsets[:, None, :]
        return np.concatenate([places - 1, places + 1], axis=2)


def _boxes(stretches: Sequence[Stretch], air: float) -> Array:
    """Return left, top, right and bottom of the segments, padded by `air` pixels."""
    ends = np.array(stretches, dtype=np.float64).reshape(-1, 2, 2)
    return np.hstack([ends.min(axis=1) - air, ends.max(axis=1) + air])


def _hits(boxes: Array, others: Array) -> NDArray[np.bool_]:
    """Return for each box whether it overlaps each of the others."""
    left, top, right, bottom = (boxes[..., side, None] for side in range(4))
    apart = (left >= others[:, 2]) | (right <= others[:, 0])
    return np.logical_not(apart | (top >= others[:, 3]) | (bottom <= others[:, 1]))
