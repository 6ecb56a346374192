// A browser runs no Worker of a page that was opened from a disk. The theme's search then asks for `IFrameWorker`: the
// same interface, on a hidden frame of this page.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.append(frame)
      this.inside = frame.contentWindow
      const load = address => new Promise((resolve, reject) => {
        const script = this.inside.document.createElement("script")
        Object.assign(script, { src: new URL(address, location), onload: resolve, onerror: reject })
        this.inside.document.head.append(script)
      })
      this.inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
      this.inside.importScripts = async (...addresses) => {
        for (const address of addresses) await load(address)
      }
      this.loaded = load(url)
    }

    postMessage(data) {
      this.loaded.then(() => this.inside.dispatchEvent(new this.inside.MessageEvent("message", { data })))
    }
  }
  window.Worker = window.IFrameWorker
}
