// Search without a server: browsers start no Worker from file://, so there its script runs in a hidden frame.
// A frame written by `srcdoc` has the page's own origin, and so the two can call each other.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    #waiting = [];
    #inside = null;

    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.srcdoc = "<!doctype html><title>worker</title>";
      frame.addEventListener("load", () => this.#start(frame, String(new URL(url, document.baseURI))), { once: true });
      const add = () => document.body.append(frame);
      document.body ? add() : addEventListener("DOMContentLoaded", add, { once: true });
    }

    #start(frame, url) {
      const inside = frame.contentWindow;
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = inside.document.createElement("script");
      script.src = url;
      script.addEventListener("load", () => {
        this.#inside = inside;
        this.#waiting.splice(0).forEach((data) => this.postMessage(data));
      });
      inside.document.head.append(script);
    }

    postMessage(data) {
      if (this.#inside) this.#inside.dispatchEvent(new this.#inside.MessageEvent("message", { data }));
      else this.#waiting.push(data);
    }
  };
}
