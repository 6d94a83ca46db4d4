// Browsers start no workers for pages that were opened as files, and search runs in one. There, a
// hidden frame takes the place of the worker: the same script, in a window of its own.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super()
      this.waiting = []
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.appendChild(frame)
      this.scope = frame.contentWindow
      this.scope.postMessage = data => {
        const event = new MessageEvent("message", { data })
        this.dispatchEvent(event)
        if (this.onmessage) this.onmessage(event)
      }
      const script = frame.contentDocument.createElement("script")
      script.src = url
      script.onload = () => {
        const messages = this.waiting
        this.waiting = null
        messages.forEach(data => this.deliver(data))
      }
      frame.contentDocument.body.appendChild(script)
    }

    postMessage(data) {
      if (this.waiting) this.waiting.push(data)
      else this.deliver(data)
    }

    deliver(data) {
      this.scope.dispatchEvent(new this.scope.MessageEvent("message", { data }))
    }

    terminate() {}
  }
  window.Worker = window.IFrameWorker
}
