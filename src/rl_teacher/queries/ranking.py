"""Bradley-Terry ranking of clips from answers that may be wrong.

N: clips, numbered in order of arrival; A: answers.

Clip i has a latent quality q_i with a Gaussian prior. With error rate e, left is preferred with
probability p = (1 - e) sigmoid(q_left - q_right) + e / 2, as in `predictor.likelihood`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64

from rl_teacher.clips.answer import TARGETS, Answer
from rl_teacher.common.sigmoid import sigmoid
from rl_teacher.quality.reliability import UNKNOWN, Reliability

PRIOR_STD = 3.0
"""Standard deviation of the qualities. Smaller ones treat too many answers between clips that are
far apart as errors; with larger ones, a wrong answer moves a new clip too far."""
MAX_DIFFERENCE = 30.0
"""Bound of the differences in the likelihood, beyond which a sigmoid is 0 or 1 in float64."""
STEP_TOLERANCE = 1e-3
"""Largest Newton step at which the fit has converged, in units of quality."""
RESIDUAL_TOLERANCE = 1e-2
"""Relative residual at which the linear solver stops."""
MIN_CURVATURE = 0.2
"""Lower bound of the curvature of an answer, as a share of its Fisher information."""
MIN_STEP_SIZE = 1e-3
EQUAL_QUALITY = 1e-6
"""Difference of qualities up to which clips are tied: those with the same answers differ by
rounding errors."""


@dataclass(frozen=True)
class RankingAnswers:
    """Informative answers as arrays.

    Attributes:
        left: [A] left clips.
        right: [A] right clips.
        target: [A] 1 for left, 0 for right, 1/2 for equal.
        error_rate: [A] probability that the labeler answered at random.
    """

    left: Int64[np.ndarray, " answer"]
    right: Int64[np.ndarray, " answer"]
    target: Float64[np.ndarray, " answer"]
    error_rate: Float64[np.ndarray, " answer"]

    @classmethod
    def of(
        cls,
        answers: Iterable[tuple[int, int, Answer, int]],
        reliability: Mapping[int, Reliability] | None = None,
    ) -> "RankingAnswers":
        """Convert answers; `cannot_tell` is left out.

        Args:
            answers: left clip, right clip, answer and labeler.
            reliability: of the labelers; without it, that of unknown ones.
        """
        known = reliability or {}
        rows = [
            (left, right, TARGETS[answer], error_rate(known.get(labeler, UNKNOWN)))
            for left, right, answer, labeler in answers
            if answer in TARGETS
        ]
        left, right, target, rate = np.array(rows, float).reshape(-1, 4).T
        return cls(left.astype(np.int64), right.astype(np.int64), target, rate)

    def sigmoids(self, means: Float64[np.ndarray, " clip"]) -> Float64[np.ndarray, " answer"]:
        """Compute [A] s = sigmoid(q_left - q_right), with bounded differences."""
        difference = means[self.left] - means[self.right]
        return sigmoid(np.clip(difference, -MAX_DIFFERENCE, MAX_DIFFERENCE))


def error_rate(reliability: Reliability) -> float:
    """Convert a reliability: half of the random answers are right, so that r = 1 - e / 2."""
    return min(2 * (1 - reliability.estimate), 1.0)


def fit_qualities(
    answers: RankingAnswers,
    prior_mean: Float64[np.ndarray, " clip"],
    start: Float64[np.ndarray, " clip"] | None = None,
    max_steps: int = 100,
) -> Float64[np.ndarray, " clip"]:
    """Compute the posterior mode by damped Newton steps.

    Args:
        answers: all current answers.
        prior_mean: [N] qualities expected without answers.
        start: [N] an earlier result to start from.
        max_steps: limit of Newton steps.

    Returns:
        [N] qualities.
    """
    means = np.array(prior_mean if start is None else start, float)
    log_density = _log_density(answers, means, prior_mean)
    for _ in range(max_steps):
        slope, information, curvature = _derivatives(answers, means)
        # Answers that look like errors curve the other way; a share of the Fisher information keeps
        # the Hessian positive definite.
        curvature = np.maximum(curvature, MIN_CURVATURE * information)
        gradient = _scatter(answers, slope, len(means)) - (means - prior_mean) / PRIOR_STD**2
        step, step_size = _solve(answers, curvature, gradient), 1.0
        # The mixture with chance is not concave, so that a whole step can overshoot.
        while True:
            proposal = means + step_size * step
            proposed = _log_density(answers, proposal, prior_mean)
            if proposed >= log_density or step_size < MIN_STEP_SIZE:
                break
            step_size /= 2
        if proposed < log_density:  # only rounding errors are left
            break
        means, log_density = proposal, proposed
        if step_size * np.abs(step).max(initial=0) < STEP_TOLERANCE:
            break
    return means


def standard_deviations(
    answers: RankingAnswers, means: Float64[np.ndarray, " clip"]
) -> Float64[np.ndarray, " clip"]:
    """Compute [N] standard deviations of the qualities, by the Laplace approximation.

    The Hessian is that of the Fisher information: each answer narrows the intervals. Takes O(N^3),
    which is too slow after each answer.
    """
    from scipy.linalg import get_lapack_funcs  # noqa: PLC0415 - heavy

    if not len(means):  # LAPACK takes no empty matrix
        return np.zeros(0)
    _, information, _ = _derivatives(answers, means)
    hessian = np.diag(_precisions(answers, information, len(means)))
    np.add.at(hessian, (answers.left, answers.right), -information)
    np.add.at(hessian, (answers.right, answers.left), -information)
    # H = L L^T, so that the diagonal of the inverse sums the squares of each column of L^-1. The
    # prior keeps H positive definite. Transposed, it is in the order of Fortran: nothing is copied.
    potrf, trtri = get_lapack_funcs(("potrf", "trtri"), (hessian,))
    factor, _ = potrf(hessian.T, lower=1)
    inverse, _ = trtri(factor, lower=1, overwrite_c=1)
    return np.sqrt(np.einsum("ij,ij->j", inverse, inverse))


def rank_targets(
    qualities: Float64[np.ndarray, " clip"],
) -> Float64[np.ndarray, " clip"]:
    """Compute [N] normal quantiles of the clips' ranks, the targets of rl-teacher-atari.

    z = Phi^-1((rank + 1/2) / N); clips of equal quality share the mean of their ranks.
    """
    from scipy.special import ndtri  # noqa: PLC0415 - heavy

    order = np.argsort(qualities, kind="stable")
    is_higher = np.diff(qualities[order], prepend=-np.inf) > EQUAL_QUALITY
    group = np.cumsum(is_higher) - 1
    mean_rank = np.bincount(group, np.arange(len(order))) / np.bincount(group)
    targets = np.empty(len(order))
    targets[order] = ndtri((mean_rank[group] + 0.5) / len(order))
    return targets


def certainties(
    answers: RankingAnswers, means: Float64[np.ndarray, " clip"]
) -> Float64[np.ndarray, " clip"]:
    """Compute [N] precisions of the qualities, scaled to mean 1, as weights of a regression.

    Each is 1 / std^2 of a quality given all others, so that it takes O(A) in place of O(N^3).
    """
    _, information, _ = _derivatives(answers, means)
    precisions = _precisions(answers, information, len(means))
    return precisions / precisions.mean()


def answer_probabilities(
    answers: RankingAnswers, means: Float64[np.ndarray, " clip"]
) -> Float64[np.ndarray, " answer"]:
    """Compute [A] probabilities that labelers who never err give these answers.

    That of `equal` is 1/2. A low one means that the answer is probably wrong.
    """
    s = answers.sigmoids(means)
    return answers.target * s + (1 - answers.target) * (1 - s)


def _derivatives(
    answers: RankingAnswers, means: Float64[np.ndarray, " clip"]
) -> tuple[
    Float64[np.ndarray, " answer"], Float64[np.ndarray, " answer"], Float64[np.ndarray, " answer"]
]:
    """Compute derivatives of the log-likelihood in the differences d of quality.

    Returns:
        [A] slopes, [A] Fisher information, and [A] curvatures: the negative second derivatives.
    """
    sure = 1 - answers.error_rate
    s = answers.sigmoids(means)
    # p = (1 - e) s + e / 2, p' = (1 - e) s (1 - s), p'' = p' (1 - 2 s)
    chance, rise = sure * s + answers.error_rate / 2, sure * s * (1 - s)
    # d/dd [t log p + (1 - t) log(1 - p)] = (t - p) p' / (p (1 - p)); its variance follows from
    # E[(t - p)^2] = p (1 - p).
    ratio = rise / (chance * (1 - chance))
    slope, information = (answers.target - chance) * ratio, rise * ratio
    curvature = information - slope * ((1 - 2 * s) - (1 - 2 * chance) * ratio)
    return slope, information, curvature


def _log_density(
    answers: RankingAnswers,
    means: Float64[np.ndarray, " clip"],
    prior_mean: Float64[np.ndarray, " clip"],
) -> float:
    """Compute the logarithm of the posterior density, up to a constant."""
    s = answers.sigmoids(means)
    chance = (1 - answers.error_rate) * s + answers.error_rate / 2
    log_p = answers.target * np.log(chance) + (1 - answers.target) * np.log1p(-chance)
    return float(log_p.sum() - 0.5 * np.sum((means - prior_mean) ** 2) / PRIOR_STD**2)


def _scatter(
    answers: RankingAnswers, values: Float64[np.ndarray, " answer"], num_clips: int
) -> Float64[np.ndarray, " clip"]:
    """Add a value per answer to its left clip, and subtract it from its right clip."""
    left, right = (np.bincount(side, values, num_clips) for side in (answers.left, answers.right))
    return np.asarray(left - right, float)  # bincount returns integers where there is nothing


def _precisions(
    answers: RankingAnswers, curvature: Float64[np.ndarray, " answer"], num_clips: int
) -> Float64[np.ndarray, " clip"]:
    """Compute [N], the diagonal of the Hessian: 1 / std^2 + curvatures of the clip's answers."""
    ends = np.concatenate([answers.left, answers.right])
    return np.bincount(ends, np.tile(curvature, 2), num_clips) + PRIOR_STD**-2


def _solve(
    answers: RankingAnswers,
    curvature: Float64[np.ndarray, " answer"],
    gradient: Float64[np.ndarray, " clip"],
) -> Float64[np.ndarray, " clip"]:
    """Solve Hessian x = gradient by conjugate gradients with a diagonal preconditioner.

    A clip is compared with few others, so that products with the Hessian take O(A), and a
    decomposition would take O(N^3).
    """
    from scipy.sparse.linalg import LinearOperator, cg  # noqa: PLC0415 - heavy

    num_clips = len(gradient)
    precisions = _precisions(answers, curvature, num_clips)

    def times_hessian(direction: Float64[np.ndarray, " clip"]) -> Float64[np.ndarray, " clip"]:
        pull = curvature * (direction[answers.left] - direction[answers.right])
        return _scatter(answers, pull, num_clips) + direction / PRIOR_STD**2

    def precondition(residual: Float64[np.ndarray, " clip"]) -> Float64[np.ndarray, " clip"]:
        return residual / precisions

    shape = num_clips, num_clips
    hessian = LinearOperator(shape, times_hessian, dtype=float)  # pyright: ignore[reportCallIssue]
    inverse = LinearOperator(shape, precondition, dtype=float)  # pyright: ignore[reportCallIssue]
    solution, _ = cg(hessian, gradient, rtol=RESIDUAL_TOLERANCE, M=inverse)
    return solution
