/** Choices that this browser remembers; without storage, they last until the page is closed. */

/** Return the stored one of several choices, or the first of them. */
export function readChoice<T extends string | number>(key: string, choices: readonly T[]): T {
  let stored: string | null = null
  try {
    stored = localStorage.getItem(key)
  } catch {
    // Storage may be blocked.
  }
  return choices.find((choice) => String(choice) === stored) ?? choices[0]!
}

export function storeChoice(key: string, choice: string | number): void {
  try {
    localStorage.setItem(key, String(choice))
  } catch {
    // Storage may be blocked or full.
  }
}
