/** Which page the address names. */

export type Route =
  | { page: 'experiments' }
  | { page: 'experiment' | 'label'; name: string }
  | { page: 'nowhere' }

export function routeOf(path: string): Route {
  if (path === '/') return { page: 'experiments' }
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

  get route(): Route {
    return routeOf(this.path)
  }

  /** Follows links within the page without loading it anew. */
  start(): void {
    addEventListener('popstate', () => (this.path = location.pathname))
    addEventListener('click', (event) => {
      const link = (event.target as Element).closest?.('a')
      const isPlain = !event.ctrlKey && !event.metaKey && !event.shiftKey && event.button === 0
      if (!link || !isPlain || link.target || link.origin !== location.origin) return
      if (routeOf(link.pathname).page === 'nowhere' || event.defaultPrevented) return
      event.preventDefault()
      history.pushState(null, '', link.pathname)
      this.path = link.pathname
      scrollTo(0, 0)
    })
  }
}

export const router = new Router()
