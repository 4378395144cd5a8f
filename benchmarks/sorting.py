"""Simulation of sorting: rank quality by answers per clip, ways of asking and rates of errors."""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import combinations
from statistics import fmean
from typing import Any

import numpy as np

from benchmarks.comparisons import iqm
from benchmarks.options import Options
from benchmarks.parts import describe_parts, measure_parts
from benchmarks.records import Record, Records
from benchmarks.tables import NONE, middle, number, table
from rl_teacher.clips.answer import Answer
from rl_teacher.queries.ranking import (
    PRIOR_STD,
    RankingAnswers,
    fit_qualities,
    standard_deviations,
)
from rl_teacher.queries.sorting import InsertionOrder, neighbour_pairs

NUM_CLIPS = (200, 1_000)
WRONG = (0.0, 0.1, 0.2)
SEEDS = (0, 1, 2, 3, 4)
PER_CLIP = (8, 12, 16)
BATCHES_PER_CLIP_ANSWER = 4
"""Fits in the time in which a clip gets one answer: a batch of n / 4 comparisons per fit."""
PREDICTOR_CORRELATION = 0.8
"""Correlation of the noisy predictor's scores with the true ranks."""
NUM_TIMED = 20
SCREEN_SIZES = (2, 3, 4, 5)
MINUTES = (30, 60, 120)
WATCH_S, JUDGE_S, SCREEN_S = 1.5, 1.0, 0.5
"""Seconds of the simulated person: to watch a clip, for a judgement, and between two screens."""
HOW = (
    "export OPENBLAS_NUM_THREADS=1  # as in the service\n"
    "python -m benchmarks.run sorting [--only tau screens person time] [--seeds 0 1]"
)

Asked = list[tuple[int, int, Answer, int]]
Oracle = Callable[[int, int], Answer]


def run(options: Options, records: Records) -> None:
    """Measure the selected parts: tau, screens, person, time."""
    parts = {
        "tau": measure_tau,
        "screens": measure_screens,
        "person": measure_person,
        "time": measure_time,
    }
    measure_parts(parts, options, records)


def measure_tau(options: Options, records: Records) -> None:
    """Simulate every way of asking, for each number of clips, rate of errors and seed."""
    for num_clips in (40,) if options.is_quick else NUM_CLIPS:
        for wrong in WRONG:
            for seed in options.seeds or options.limited(SEEDS, 2):
                taus = simulate(num_clips, wrong, seed)
                records.append(
                    run=options.run, part="tau", clips=num_clips, wrong=wrong, seed=seed, **taus
                )
                print(f"  {num_clips} clips, {wrong:.0%} wrong, seed {seed}", flush=True)


def simulate(num_clips: int, wrong: float, seed: int) -> dict[str, Any]:
    """Compute Kendall's tau between the true order and the found one, by way of asking."""
    rng = np.random.default_rng([seed, num_clips, round(100 * wrong)])
    truth = rng.permutation(num_clips)
    noise = np.sqrt(PREDICTOR_CORRELATION**-2 - 1) * np.std(truth)
    scores = truth + noise * rng.normal(size=num_clips)
    answer = erring_oracle(truth, wrong, rng)
    found: dict[str, Any] = {}
    order, inserted = insert(num_clips, answer)
    place = {clip: i for i, group in enumerate(order.groups) for clip in group}
    found["insertion"] = {
        "answers": len(inserted) / num_clips,
        "order": tau([place[clip] for clip in range(num_clips)], truth),
        "fit": tau(fit(inserted, np.zeros(num_clips)), truth),
    }
    zeros, expected = np.zeros(num_clips), PRIOR_STD * (scores - scores.mean()) / scores.std()
    asking = partial(taus_by_answers, truth=truth, answer=answer, rng=rng)
    found["random"] = asking([], prior_mean=zeros, choose=random_pairs)
    found["neighbours"] = asking([], prior_mean=zeros, choose=neighbours)
    found["insertion_neighbours"] = asking(inserted, prior_mean=zeros, choose=neighbours)
    found["presorted_neighbours"] = asking([], prior_mean=expected, choose=neighbours)
    return found


def erring_oracle(truth: np.ndarray, wrong: float, rng: np.random.Generator) -> Oracle:
    """Return a teacher whose answers are wrong at a rate."""

    def answer(left: int, right: int) -> Answer:
        is_left = (truth[left] > truth[right]) != (rng.random() < wrong)
        return Answer.LEFT if is_left else Answer.RIGHT

    return answer


def insert(num_clips: int, answer: Oracle) -> tuple[InsertionOrder, Asked]:
    """Sort by binary insertion."""
    order, asked = InsertionOrder(num_clips), []
    while order.pending:
        left, right = next(order.questions())
        asked.append((left, right, answer(left, right), 0))
        order.add_answer(*asked[-1][:3])
    return order, asked


def fit(asked: Asked, prior_mean: np.ndarray, start: np.ndarray | None = None) -> np.ndarray:
    """Fit the model with the error rate of a labeler about whom nothing is known."""
    return fit_qualities(RankingAnswers.of(asked), prior_mean, start)


def tau(found: Sequence[float] | np.ndarray, truth: np.ndarray) -> float:
    """Compute Kendall's rank correlation: concordant less discordant pairs, of all pairs."""
    signs = [np.sign(np.subtract.outer(each, each)) for each in (found, truth)]
    return float(np.sum(signs[0] * signs[1]) / (len(truth) * (len(truth) - 1)))


def random_pairs(
    qualities: np.ndarray,
    asked: Asked,  # noqa: ARG001
    rng: np.random.Generator,
) -> list[tuple[int, int]]:
    """Pair all clips at random."""
    shuffled = rng.permutation(len(qualities)).tolist()
    return list(zip(shuffled[::2], shuffled[1::2], strict=False))


def neighbours(
    qualities: np.ndarray, asked: Asked, rng: np.random.Generator
) -> list[tuple[int, int]]:
    """Pair neighbours in the current ranking."""
    return list(neighbour_pairs(qualities, [each[:2] for each in asked], (), rng))


def taus_by_answers(
    asked: Asked,
    *,
    truth: np.ndarray,
    answer: Oracle,
    rng: np.random.Generator,
    prior_mean: np.ndarray,
    choose: Callable[[np.ndarray, Asked, np.random.Generator], list[tuple[int, int]]],
) -> dict[str, float | None]:
    """Ask in batches; compute tau at each number of answers per clip, None if it is exceeded."""
    asked, num_clips, taus = list(asked), len(truth), {}
    qualities = fit(asked, prior_mean)
    for per_clip in PER_CLIP:
        if len(asked) > per_clip * num_clips:
            taus[str(per_clip)] = None
            continue
        while missing := per_clip * num_clips - len(asked):
            batch = choose(qualities, asked, rng)
            batch = batch[: min(missing, num_clips // BATCHES_PER_CLIP_ANSWER)]
            asked += [(left, right, answer(left, right), 0) for left, right in batch]
            qualities = fit(asked, prior_mean, qualities)
        taus[str(per_clip)] = tau(qualities, truth)
    return taus


def measure_screens(options: Options, records: Records) -> None:
    """Simulate rankings of two to five clips on a screen, for each rate of errors and seed."""
    num_clips = 40 if options.is_quick else NUM_CLIPS[0]
    budgets = {str(per_clip): per_clip * num_clips for per_clip in PER_CLIP}
    simulate_screens("screens", num_clips, budgets, lambda _, judged: judged, options, records)


def measure_person(options: Options, records: Records) -> None:
    """Simulate the same screens with the seconds that a person takes for them."""
    num_clips = 40 if options.is_quick else NUM_CLIPS[0]
    budgets = {str(each): 60 * each for each in options.limited(MINUTES)}
    simulate_screens("person", num_clips, budgets, person_seconds, options, records)


def person_seconds(num_clips: int, num_judged: int) -> float:
    """Return the seconds in which a person watches a screen's clips one by one and ranks them."""
    return SCREEN_S + WATCH_S * num_clips + JUDGE_S * num_judged


def simulate_screens(
    part: str,
    num_clips: int,
    budgets: Mapping[str, float],
    cost: Callable[[int, int], float],
    options: Options,
    records: Records,
) -> None:
    """Record simulations of screens of each size, for each rate of errors and seed."""
    for size in SCREEN_SIZES:
        for wrong in WRONG:
            for seed in options.seeds or options.limited(SEEDS, 2):
                found = rank_screens(num_clips, size, wrong, seed, budgets, cost)
                facts = {"clips": num_clips, "size": size, "wrong": wrong, "seed": seed}
                records.append(run=options.run, part=part, **facts, **found)
        print(f"  {part}: {size} clips on a screen", flush=True)


def rank_screens(
    num_clips: int,
    size: int,
    wrong: float,
    seed: int,
    budgets: Mapping[str, float],
    cost: Callable[[int, int], float],
) -> dict[str, Any]:
    """Compute tau when each budget is spent, and what a judgement yields.

    A judgement says which of two clips is better. It takes several to put the clips of a screen in
    order, by binary insertion, and the ranking is stored as an answer about each pair of them.

    Args:
        num_clips: clips to sort.
        size: clips on a screen.
        wrong: rate of wrong judgements.
        seed: of the true order and the errors.
        budgets: ascending, by name.
        cost: of a screen, by its number of clips and of judgements.
    """
    rng = np.random.default_rng([seed, num_clips, round(100 * wrong)])
    truth = rng.permutation(num_clips)
    answer = erring_oracle(truth, wrong, rng)
    qualities, taus, num_watched = np.zeros(num_clips), {}, 0
    judged: list[int] = []  # of each screen
    asked: Asked = []
    spent = 0.0
    for name, budget in budgets.items():
        while spent < budget:
            first = len(judged)
            clips = [clip for pair in neighbours(qualities, asked, rng) for clip in pair]
            while (
                len(clips) >= size
                and spent < budget
                and sum(judged[first:]) < num_clips // BATCHES_PER_CLIP_ANSWER
            ):
                screen, clips = clips[:size], clips[size:]
                ranked, num_judged = rank_screen(screen, answer)
                judged.append(num_judged)
                spent += cost(size, num_judged)
                asked += [(*pair, Answer.LEFT, 0) for pair in combinations(ranked, 2)]
                num_watched += size
            qualities = fit(asked, np.zeros(num_clips), qualities)
        taus[name] = tau(qualities, truth)
    total = sum(judged)
    return {
        "taus": taus,
        "answers_per_judgement": len(asked) / total,
        "watched_per_judgement": num_watched / total,
        "judgements_per_cost": total / spent,
    }


def rank_screen(clips: Sequence[int], answer: Oracle) -> tuple[list[int], int]:
    """Put clips in order, best first, by binary insertion; return them and the judgements."""
    order, judged = insert(len(clips), lambda left, right: answer(clips[left], clips[right]))
    return [clips[i] for group in reversed(order.groups) for i in group], len(judged)


def measure_time(options: Options, records: Records) -> None:
    """Time a new ranking after each of some answers, the intervals and the next questions."""
    num_clips = 40 if options.is_quick else NUM_CLIPS[-1]
    rng = np.random.default_rng(0)
    truth = rng.permutation(num_clips)
    asked: Asked = []
    qualities = np.zeros(num_clips)
    answer = erring_oracle(truth, 0.1, rng)

    def ask(pairs: list[tuple[int, int]]) -> None:
        asked.extend((left, right, answer(left, right), 0) for left, right in pairs)

    while len(asked) < PER_CLIP[-1] * num_clips:
        ask(neighbours(qualities, asked, rng))
        qualities = fit(asked, np.zeros(num_clips), qualities)
    spent: dict[str, list[float]] = {"convert": [], "rank": [], "intervals": [], "choose": []}
    for _ in range(NUM_TIMED):
        batch = timed(spent["choose"], neighbours, qualities, asked, rng)
        ask(batch[:1])
        arrays = timed(spent["convert"], RankingAnswers.of, asked)
        qualities = timed(spent["rank"], fit_qualities, arrays, np.zeros(num_clips), qualities)
        timed(spent["intervals"], standard_deviations, arrays, qualities)
    times = {f"{name}_ms": [1e3 * each for each in of] for name, of in spent.items()}
    records.append(run=options.run, part="time", clips=num_clips, answers=len(asked), **times)


def timed(spent: list[float], work: Callable[..., Any], *arguments: Any) -> Any:
    """Do work and note its processor time: other processes do not count."""
    start_s = time.process_time()
    result = work(*arguments)
    spent.append(time.process_time() - start_s)
    return result


# --- report ---


def report(records: list[Record]) -> list[str]:
    """Build the tables of the newest run of each part."""
    parts = {"tau": _taus, "screens": _screens, "person": _person, "time": _times}
    return describe_parts(parts, records)


WAYS = {
    "random": "random pairs",
    "neighbours": "neighbours",
    "insertion_neighbours": "binary insertion, then neighbours",
    "presorted_neighbours": "neighbours, predicted prior means",
}


def _taus(records: list[Record]) -> list[str]:
    settings = list(dict.fromkeys((record["clips"], record["wrong"]) for record in records))
    groups = [[r for r in records if (r["clips"], r["wrong"]) == setting] for setting in settings]
    rows = []
    for kind, meaning in (("order", "its order"), ("fit", "Bradley-Terry fit")):
        answers = " / ".join(
            number(fmean(r["insertion"]["answers"] for r in records if r["clips"] == num_clips))
            for num_clips in dict.fromkeys(clips for clips, _ in settings)
        )
        cells = [cell([record["insertion"][kind] for record in group]) for group in groups]
        rows.append([f"binary insertion: {meaning}", answers, *cells])
    for name, label in WAYS.items():
        for per_clip in PER_CLIP:
            cells = [cell([record[name][str(per_clip)] for record in group]) for group in groups]
            rows.append([label, per_clip, *cells])
    headings = [f"{num_clips:,} clips, {wrong:.0%} wrong" for num_clips, wrong in settings]
    return [
        "### Rank quality by answers per clip",
        "",
        "Kendall's tau with the true order; interquartile mean over "
        f"{len({record['seed'] for record in records})} seeds (lowest to highest). An answer is "
        "wrong at the stated rate, however far apart the clips are. Fits assume the error rate of "
        "a labeler about whom nothing is known, 20 % wrong answers. The scores of the predictor "
        f"correlate with the true ranks by {PREDICTOR_CORRELATION}. Neighbours are fitted after "
        f"every n / {BATCHES_PER_CLIP_ANSWER} answers. {NONE}: the insertion alone takes more "
        "answers.",
        "",
        *table(["", "answers per clip", *headings], rows),
        "",
    ]


def _screens(records: list[Record]) -> list[str]:
    rates = list(dict.fromkeys(record["wrong"] for record in records))
    rows = []
    for size in dict.fromkeys(record["size"] for record in records):
        of_size = [record for record in records if record["size"] == size]
        yields = [
            f"{fmean(record[name] for record in of_size):.2f}"
            for name in ("watched_per_judgement", "answers_per_judgement")
        ]
        for per_clip in PER_CLIP:
            cells = [
                cell([r["taus"][str(per_clip)] for r in of_size if r["wrong"] == wrong])
                for wrong in rates
            ]
            rows.append([size, *yields, per_clip, *cells])
    return [
        "### Several clips on a screen",
        "",
        f"{records[0]['clips']} clips. A judgement says which of two clips is better, and is wrong "
        "at the stated rate. The clips of a screen are put in order by binary insertion, and the "
        "ranking is stored as an answer about each pair of them. Screens show the clips of pairs "
        "of neighbours, as the page does with `--queries sort`. Kendall's tau as above.",
        "",
        *table(
            ["clips on a screen", "clips watched per judgement", "answers per judgement",
             "judgements per clip", *(f"{wrong:.0%} wrong" for wrong in rates)],
            rows,
        ),
        "",
    ]  # fmt: skip


def _person(records: list[Record]) -> list[str]:
    rates = list(dict.fromkeys(record["wrong"] for record in records))
    rows = []
    for size in dict.fromkeys(record["size"] for record in records):
        of_size = [record for record in records if record["size"] == size]
        judged = 60 * fmean(record["judgements_per_cost"] for record in of_size)
        answers = judged * fmean(record["answers_per_judgement"] for record in of_size)
        for minutes in of_size[0]["taus"]:
            cells = [
                cell([r["taus"][minutes] for r in of_size if r["wrong"] == wrong])
                for wrong in rates
            ]
            rows.append([size, f"{judged:.1f}", f"{answers:.1f}", minutes, *cells])
    return [
        "### Simulated person",
        "",
        f"{records[0]['clips']} clips on the same screens, by the time of a simulated person, not "
        f"of people: {WATCH_S} s to watch a clip once, one clip after the other, {JUDGE_S} s for a "
        f"judgement of two clips, and {SCREEN_S} s between two screens. Kendall's tau as above.",
        "",
        *table(
            ["clips on a screen", "judgements per minute", "answers per minute", "minutes",
             *(f"{wrong:.0%} wrong" for wrong in rates)],
            rows,
        ),
        "",
    ]  # fmt: skip


def cell(taus: list[float | None]) -> str:
    """Format the interquartile mean with the lowest and the highest value."""
    known = [each for each in taus if each is not None]
    if not known:
        return NONE
    return f"{iqm(known):.3f} ({min(known):.2f} to {max(known):.2f})"


def _times(records: list[Record]) -> list[str]:
    newest = records[-1]
    work = {
        "rank_ms": "new ranking after one answer, warm-started",
        "convert_ms": "conversion of all answers to arrays",
        "choose_ms": "choice of neighbours",
        "intervals_ms": "intervals of all clips",
    }
    rows = [
        [label, number(middle(newest[name])), number(max(newest[name]))]
        for name, label in work.items()
    ]
    return [
        "### Time of a new ranking",
        "",
        f"{newest['clips']:,} clips and {newest['answers']:,} answers, 10 % of them wrong; "
        "milliseconds of processor time (to reach: under 50 for a ranking after one answer).",
        "",
        *table(["", "median ms", "highest ms"], rows),
        "",
    ]
