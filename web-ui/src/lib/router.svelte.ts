/** Client-side routing by the address's path. */

export type Route =
  | { page: 'experiments' | 'join' | 'play' }
  | { page: 'experiment' | 'label' | 'watch'; name: string }
  | { page: 'notFound' }

export function routeOf(path: string): Route {
  if (path === '/') return { page: 'experiments' }
  if (path === '/join') return { page: 'join' }
  if (path === '/play') return { page: 'play' }
  const match = /^\/e\/([^/]+)(?:\/(label|watch))?\/?$/.exec(path)
  if (match === null) return { page: 'notFound' }
  try {
    const page = (match[2] as 'label' | 'watch' | undefined) ?? 'experiment'
    return { page, name: decodeURIComponent(match[1]!) }
  } catch {
    return { page: 'notFound' }
  }
}

export const experimentPath = (name: string): string => `/e/${encodeURIComponent(name)}`
export const labelPath = (name: string): string => `${experimentPath(name)}/label`
/** The page of the agent's latest episode. */
export const watchPath = (name: string): string => `${experimentPath(name)}/watch`
export const settingsPath = (name: string): string => `${experimentPath(name)}?tab=settings`
/** The labelling page with one comparison. */
export const comparisonPath = (name: string, id: number): string =>
  `${labelPath(name)}?comparison=${id}`
/** The labelling page, with practice comparisons first. */
export const tutorialPath = (name: string): string => `${labelPath(name)}?tutorial`

class Router {
  path = $state(location.pathname)
  search = $state(location.search)

  get route(): Route {
    return routeOf(this.path)
  }

  get query(): URLSearchParams {
    return new URLSearchParams(this.search)
  }

  /** Follow links within the site without a page load. */
  start(): void {
    addEventListener('popstate', () => this.#follow())
    addEventListener('click', (event) => {
      const link = (event.target as Element).closest?.('a')
      const isPlain = !event.ctrlKey && !event.metaKey && !event.shiftKey && event.button === 0
      if (!link || !isPlain || link.target || link.origin !== location.origin) return
      if (routeOf(link.pathname).page === 'notFound' || event.defaultPrevented) return
      event.preventDefault()
      const isSamePage = link.pathname === this.path
      history.replaceState({ scroll_px: scrollY }, '')
      history.pushState(null, '', link.pathname + link.search)
      this.#follow()
      if (!isSamePage) scrollTo(0, 0)
    })
  }

  /** Scroll to where this entry of the browser's history was left. */
  restoreScroll(): void {
    scrollTo(0, (history.state as { scroll_px: number } | null)?.scroll_px ?? 0)
  }

  /** Set a key of the query to the values that are not empty, without a new entry in the browser's history. */
  setQuery(key: string, ...values: readonly string[]): void {
    const { query } = this
    query.delete(key)
    for (const value of values) if (value !== '') query.append(key, value)
    const text = query.toString()
    this.replace(location.pathname + (text && `?${text}`))
  }

  /** Go to another path and remove this one from the browser's history. */
  replace(path: string): void {
    history.replaceState(null, '', path)
    this.#follow()
  }

  #follow(): void {
    this.path = location.pathname
    this.search = location.search
  }
}

export const router = new Router()
