// Browsers start no worker from a file:// page. There, the search runs in a hidden frame instead, so that the site can be
// read without a server. Over http this file does nothing.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.onmessage = this.onerror = this.onmessageerror = null;
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      inside.postMessage = (data) => {
        const copy = structuredClone(data);
        setTimeout(() => this.answer("message", copy)); // later and a copy, as from a real worker
      };
      this.ready = new Promise((resolve) => {
        const script = inside.document.createElement("script");
        script.onload = resolve;
        script.onerror = () => this.answer("error", `cannot load ${url}`);
        script.src = new URL(url, location.href).href;
        inside.document.body.append(script);
      });
    }
    answer(kind, data) {
      const event = new MessageEvent(kind, { data });
      this.dispatchEvent(event);
      this[`on${kind}`]?.(event);
    }
    postMessage(data) {
      const copy = structuredClone(data);
      const inside = this.frame.contentWindow;
      this.ready.then(() => setTimeout(() => inside.dispatchEvent(new MessageEvent("message", { data: copy }))));
    }
    terminate() {
      this.frame.remove();
    }
  };
}
