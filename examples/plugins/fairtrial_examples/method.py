"""A method: the sign test on paired differences, with the median. `fairtrial analyze STUDY --method sign`"""

import math

import numpy as np

from fairtrial.plugins import Inference, Method


def infer_sign(arms, _resamples, _generator):
    from scipy.stats import binom

    differences = np.sort(arms.differences)
    n = len(differences)
    p_greater = float(binom.sf((differences > 0).sum() - 1, n, 0.5))
    p_less = float(binom.sf((differences < 0).sum() - 1, n, 0.5))

    def rank(tail):  # the largest k such that P(median < k-th smallest difference) <= tail
        return int(sum(binom.cdf(k, n, 0.5) <= tail for k in range(n)))

    return Inference(
        method="sign test",
        value=float(np.median(differences)),
        lower=lambda tail: float(differences[rank(tail) - 1]) if rank(tail) else -math.inf,
        upper=lambda tail: float(differences[n - rank(tail)]) if rank(tail) else math.inf,
        p_greater=p_greater,
        p_less=p_less,
        p_two_sided=min(1.0, 2 * min(p_greater, p_less)),
    )


SIGN = Method(infer_sign, designs=("paired",))
