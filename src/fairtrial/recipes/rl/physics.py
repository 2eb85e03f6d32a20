"""Vectorized classic control tasks: one call steps every environment of every run.

Constants and the order of operations are Gymnasium's, so that results are identical to those of Gymnasium's
environments; the tests compare them step by step. A state is an array [components, runs, environments], an observation
is [runs, environments, components].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import pi
from typing import Any, Protocol

import numpy
from numpy import cos, float32, sin

Array = numpy.ndarray[Any, Any]


@dataclass(frozen=True)
class Space:
    """Observation shape and action space: `actions` choices, or that many numbers between `low` and `high`."""

    observation: tuple[int, ...]
    actions: int
    low: Array | None = None
    high: Array | None = None

    @property
    def is_discrete(self) -> bool:
        return self.low is None


class Physics(Protocol):
    """The equations of one task."""

    @property
    def space(self) -> Space: ...

    @property
    def limit(self) -> int:
        """Number of steps after which an episode is truncated."""
        ...

    @property
    def positions(self) -> tuple[int, ...]:
        """The components of an observation that are not velocities."""
        ...

    def start(self, draw: numpy.random.Generator, count: int, spread: float) -> Array:
        """Return initial states from the fraction `spread` of their usual range."""
        ...

    def advance(self, state: Array, actions: Array) -> tuple[Array, Array, Array]:
        """Return the next states, the rewards, and a mask of terminated episodes."""
        ...

    def observe(self, state: Array, out: Array) -> None: ...


def _uniform(draw: numpy.random.Generator, high: tuple[float, ...], count: int, spread: float) -> Array:
    """Draw states between −high and high, row by row, so that the first rows do not depend on `count`."""
    return (draw.uniform(-1.0, 1.0, (count, len(high))) * (numpy.array(high) * spread)).T


class CartPole:
    space = Space((4,), 2)
    limit = 500
    positions = (0, 2)
    gravity, pole_mass, cart_mass, length, force, tau = 9.8, 0.1, 1.0, 0.5, 10.0, 0.02
    mass = pole_mass + cart_mass
    pole_moment = pole_mass * length
    limits = numpy.array([2.4, 12 * 2 * pi / 360])[:, None, None]

    def start(self, draw: numpy.random.Generator, count: int, spread: float) -> Array:
        return _uniform(draw, (0.05,) * 4, count, spread)

    def advance(self, state: Array, actions: Array) -> tuple[Array, Array, Array]:
        theta, theta_dot = state[2], state[3]
        force = actions * (2 * self.force) - self.force
        costheta, sintheta = cos(theta), sin(theta)
        push = (force + self.pole_moment * numpy.square(theta_dot) * sintheta) / self.mass
        change = numpy.empty_like(state)
        change[0::2] = state[1::2]
        change[3] = theta_acc = (self.gravity * sintheta - costheta * push) / (
            self.length * (4.0 / 3.0 - self.pole_mass * numpy.square(costheta) / self.mass)
        )
        change[1] = push - self.pole_moment * theta_acc * costheta / self.mass
        change *= self.tau
        change += state
        beyond = numpy.abs(change[0::2]) > self.limits
        return change, numpy.ones(theta.shape), beyond[0] | beyond[1]

    def observe(self, state: Array, out: Array) -> None:
        out[...] = state.transpose(1, 2, 0)


class Acrobot:
    space = Space((6,), 3)
    limit = 500
    positions = (0, 1, 2, 3)
    time, gravity, centre, inertia = 0.2, 9.8, 0.5, 1.0  # masses and lengths are 1
    speeds = (4 * pi, 9 * pi)

    def start(self, draw: numpy.random.Generator, count: int, spread: float) -> Array:
        return _uniform(draw, (0.1,) * 4, count, spread).astype(float32).astype(float)

    def advance(self, state: Array, actions: Array) -> tuple[Array, Array, Array]:
        """Perform one Runge–Kutta step."""
        torque = actions - 1.0
        dt, half = self.time, self.time / 2.0
        k1 = self._slope(state, torque)
        k2 = self._slope(state + half * k1, torque)
        k3 = self._slope(state + half * k2, torque)
        k4 = self._slope(state + dt * k3, torque)
        moved: Array = state + dt / 6.0 * (k1 + 2 * k2 + 2 * k3 + k4)
        angles = moved[:2]
        angles -= 2 * pi * (angles > pi)
        angles += 2 * pi * (angles < -pi)
        for speed, limit in zip(moved[2:], self.speeds, strict=True):
            numpy.clip(speed, -limit, limit, out=speed)
        ended = -cos(moved[0]) - cos(moved[1] + moved[0]) > 1.0
        return moved, numpy.where(ended, 0.0, -1.0), ended

    def _slope(self, state: Array, torque: Array) -> Array:
        first, second, first_dot, second_dot = state
        lc, g, inertia = self.centre, self.gravity, self.inertia
        cos2, sin2 = cos(second), sin(second)
        d1 = lc**2 + (1.0 + lc**2 + 2 * lc * cos2) + inertia + inertia
        d2 = (lc**2 + lc * cos2) + inertia
        phi2 = lc * g * cos(first + second - pi / 2.0)
        phi1 = (
            -lc * second_dot**2 * sin2
            - 2 * lc * second_dot * first_dot * sin2
            + (lc + 1.0) * g * cos(first - pi / 2)
            + phi2
        )
        second_acc = (torque + d2 / d1 * phi1 - lc * first_dot**2 * sin2 - phi2) / (lc**2 + inertia - d2**2 / d1)
        first_acc = -(d2 * second_acc + phi1) / d1
        return numpy.stack((first_dot, second_dot, first_acc, second_acc))

    def observe(self, state: Array, out: Array) -> None:
        out[..., 0], out[..., 1] = cos(state[0]), sin(state[0])
        out[..., 2], out[..., 3] = cos(state[1]), sin(state[1])
        out[..., 4], out[..., 5] = state[2], state[3]


class Pendulum:
    torque, speed, time, gravity = 2.0, 8.0, 0.05, 10.0  # mass and length are 1
    space = Space((3,), 1, numpy.array([-torque], float32), numpy.array([torque], float32))
    limit = 200
    positions = (0, 1)

    def start(self, draw: numpy.random.Generator, count: int, spread: float) -> Array:
        return _uniform(draw, (pi, 1.0), count, spread)

    def advance(self, state: Array, actions: Array) -> tuple[Array, Array, Array]:
        angle, angle_dot = state
        push = numpy.clip(actions[..., 0], -self.torque, self.torque)
        costs = ((angle + pi) % (2 * pi) - pi) ** 2 + 0.1 * angle_dot**2 + 0.001 * push**2
        moved = numpy.empty_like(state)
        turned = angle_dot + (3 * self.gravity / 2 * sin(angle) + 3.0 * push) * self.time
        moved[1] = numpy.clip(turned, -self.speed, self.speed)
        moved[0] = angle + moved[1] * self.time
        return moved, -costs, numpy.zeros(angle.shape, bool)

    def observe(self, state: Array, out: Array) -> None:
        out[..., 0], out[..., 1], out[..., 2] = cos(state[0]), sin(state[0]), state[1]


PHYSICS: Mapping[str, Callable[[], Physics]] = {"CartPole-v1": CartPole, "Acrobot-v1": Acrobot, "Pendulum-v1": Pendulum}
"""The tasks that are implemented here. All others run in Gymnasium."""
