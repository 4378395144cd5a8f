/**
 * Move scripts and styles into the HTML file: a browser loads no modules from a file.
 *
 * @returns {import('vite').Plugin}
 */
export function inlineFiles() {
  return {
    name: 'inline-files',
    generateBundle: {
      // Vite itself completes the code of imports in this hook.
      order: 'post',
      handler(_, bundle) {
        const html = Object.values(bundle).find(({ fileName }) => fileName.endsWith('.html'))
        const take = (path) => {
          const { [path.replace(/^\//, '')]: file } = bundle
          delete bundle[file.fileName]
          return file.type === 'chunk' ? file.code : file.source
        }
        // A closing tag in the code would end the element.
        html.source = html.source
          .replace(/<link rel="stylesheet"[^>]* href="([^"]+)">/g, (_, path) => `<style>${take(path)}</style>`)
          .replace(
            /<script type="module"[^>]* src="([^"]+)"><\/script>/g,
            (_, path) => `<script type="module">${take(path).replaceAll('</script', '<\\/script')}</script>`,
          )
      },
    },
  }
}
