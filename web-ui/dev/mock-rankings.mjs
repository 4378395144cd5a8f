// The mock service's rankings: of a labeler's clips on one screen, and of all clips of an experiment.

const PRIOR_STD = 3
const CONTRADICTION = 0.1
const TARGETS = { left: 1, equal: 0.5, right: 0 }

/** Return the answer about each pair of clips, by their hashes; `cannot_tell` if one is left out. */
export function pairwiseAnswers({ groups, left_out: leftOut }) {
  const placed = groups.flatMap((group, place) => group.map((hash) => [hash, place]))
  const all = [...placed, ...leftOut.map((hash) => [hash, null])]
  return all.flatMap(([left, one], i) => all.slice(i + 1).map(([right, other]) =>
    [left, right, one === null || other === null ? 'cannot_tell' : one === other ? 'equal' : 'left']))
}

/** Rank clips by a few gradient steps of a Bradley-Terry model, the best first. */
export function rank(comparisons, answersOf) {
  const clips = new Map(comparisons.flatMap(({ left, right }) => [left, right].map((clip) => [clip.hash, clip])))
  const facts = new Map([...clips.keys()].map((hash) => [hash, { quality: 0, num_answers: 0, num_open: 0 }]))
  const answers = comparisons.flatMap((comparison) =>
    answersOf(comparison).filter(({ answer }) => answer in TARGETS).map((one) => ({
      ...one, comparison, left: facts.get(comparison.left.hash), right: facts.get(comparison.right.hash),
    })))
  for (let i = 0; i < 200; i++) {
    for (const one of facts.values()) one.quality -= (0.2 * one.quality) / PRIOR_STD ** 2
    for (const { left, right, answer } of answers) {
      const slope = 0.2 * (TARGETS[answer] - probability(left, right, 'left'))
      left.quality += slope
      right.quality -= slope
    }
  }
  for (const { left, right } of answers) for (const one of [left, right]) one.num_answers++
  for (const comparison of comparisons.filter((one) => answersOf(one).length === 0)) {
    for (const { hash } of [comparison.left, comparison.right]) facts.get(hash).num_open++
  }
  const ranked = [...facts].sort(([, one], [, other]) => other.quality - one.quality)
  return {
    clips: ranked.map(([hash, fact], i) => ({
      hash, clip: clips.get(hash), rank: i + 1, ...fact, standard_deviation: PRIOR_STD / Math.sqrt(1 + 2 * fact.num_answers),
    })),
    answersTo: (comparison) => answersOf(comparison).map((one) => {
      const isTelling = one.answer in TARGETS
      const sides = [comparison.left, comparison.right].map(({ hash }) => facts.get(hash))
      const chance = isTelling ? probability(...sides, one.answer) : null
      return { ...one, probability: chance, is_contradiction: chance !== null && chance < CONTRADICTION }
    }),
    num_answers: answers.length,
  }
}

function probability(left, right, answer) {
  const isLeft = 1 / (1 + Math.exp(right.quality - left.quality))
  return { left: isLeft, right: 1 - isLeft, equal: 0.5 }[answer]
}
