/** The colour scheme: the system's, or the one chosen in this browser. */

import { readChoice, storeChoice } from './storage'

export const THEMES = ['auto', 'light', 'dark'] as const
export type ThemeChoice = (typeof THEMES)[number]

const KEY = 'theme'
const systemIsDark = matchMedia('(prefers-color-scheme: dark)')

class Theme {
  choice = $state<ThemeChoice>('auto')
  #isSystemDark = $state(systemIsDark.matches)

  get isDark(): boolean {
    return this.choice === 'auto' ? this.#isSystemDark : this.choice === 'dark'
  }

  /** Apply the stored choice and follow changes in other tabs and of the system. */
  start(): void {
    this.#read()
    addEventListener('storage', () => this.#read())
    systemIsDark.addEventListener('change', () => {
      this.#isSystemDark = systemIsDark.matches
      this.#apply()
    })
  }

  choose(choice: ThemeChoice): void {
    storeChoice(KEY, choice)
    this.choice = choice
    this.#apply()
  }

  #read(): void {
    this.choice = readChoice(KEY, THEMES)
    this.#apply()
  }

  #apply(): void {
    document.documentElement.dataset.theme = this.choice
    const { backgroundColor } = getComputedStyle(document.body)
    for (const meta of document.querySelectorAll<HTMLMetaElement>('meta[name=theme-color]')) {
      meta.content = backgroundColor
    }
  }
}

export const theme = new Theme()
