/** Which page the address names. */

export type Route =
  | { page: 'experiments' | 'join' | 'play' }
  | { page: 'experiment' | 'label'; name: string }
  | { page: 'nowhere' }

export function routeOf(path: string): Route {
  if (path === '/') return { page: 'experiments' }
  if (path === '/join') return { page: 'join' }
  if (path === '/play') return { page: 'play' }
  const match = /^\/e\/([^/]+)(\/label)?\/?$/.exec(path)
  if (match === null) return { page: 'nowhere' }
  try {
    return { page: match[2] ? 'label' : 'experiment', name: decodeURIComponent(match[1]!) }
  } catch {
    return { page: 'nowhere' }
  }
}

export const experimentPath = (name: string): string => `/e/${encodeURIComponent(name)}`
export const labelPath = (name: string): string => `${experimentPath(name)}/label`

class Router {
  path = $state(location.pathname)
  search = $state(location.search)

  get route(): Route {
    return routeOf(this.path)
  }

  /** What follows the question mark. */
  get query(): URLSearchParams {
    return new URLSearchParams(this.search)
  }

  /** Follows links within the page without loading it anew. */
  start(): void {
    addEventListener('popstate', () => this.#follow())
    addEventListener('click', (event) => {
      const link = (event.target as Element).closest?.('a')
      const isPlain = !event.ctrlKey && !event.metaKey && !event.shiftKey && event.button === 0
      if (!link || !isPlain || link.target || link.origin !== location.origin) return
      if (routeOf(link.pathname).page === 'nowhere' || event.defaultPrevented) return
      event.preventDefault()
      const isSamePage = link.pathname === this.path
      history.pushState(null, '', link.pathname + link.search)
      this.#follow()
      if (!isSamePage) scrollTo(0, 0)
    })
  }

  /** Puts another query behind the address, without a new entry in the browser's history. */
  replaceQuery(query: URLSearchParams): void {
    const text = query.toString()
    history.replaceState(null, '', location.pathname + (text === '' ? '' : `?${text}`))
    this.#follow()
  }

  /** Goes elsewhere, so that going back does not lead here again. */
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
