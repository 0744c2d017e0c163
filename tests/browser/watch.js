// Writes down, in milliseconds since 1970, when things happen in a page of viser, for the test that times a slider:
// when a key is pressed and when the page's thread hears of it, when a change of a control leaves the page, when
// a message comes back to the browser (in the thread of the connection), when the page's thread takes it up, and
// when two more pictures have been drawn.
window.seen = [];
const now = "(performance.timeOrigin + performance.now())";
const stamp = () => performance.timeOrigin + performance.now();

window.addEventListener(
  "keydown",
  (event) => window.seen.push({ what: "key", at: performance.timeOrigin + event.timeStamp, heard: stamp() }),
  true,
);

// Runs first inside the thread of the connection: each batch of messages carries the time at which it came in.
const inside = `{
  const arrivals = [];
  const own = Object.getOwnPropertyDescriptor(WebSocket.prototype, "onmessage");
  Object.defineProperty(WebSocket.prototype, "onmessage", {
    get() { return own.get.call(this); },
    set(handle) { own.set.call(this, (event) => { arrivals.push(${now}); return handle(event); }); },
  });
  const post = self.postMessage.bind(self);
  self.postMessage = (data, moved) =>
    post(data.type === "message_batch" ? { ...data, came: arrivals.shift() } : data, moved);
}\n`;

const Plain = window.Worker;
window.Worker = class extends Plain {
  constructor(url, options) {
    const request = new XMLHttpRequest();
    request.open("GET", url, false);
    request.send();
    super(URL.createObjectURL(new Blob([inside, request.responseText], { type: "text/javascript" })), options);
  }

  postMessage(data, ...more) {
    const isChange = data && data.type === "send" && data.message.type === "GuiUpdateMessage";
    if (isChange) window.seen.push({ what: "sent", at: stamp() });
    return super.postMessage(data, ...more);
  }

  set onmessage(handle) {
    super.onmessage = (event) => {
      if (event.data.type === "message_batch") {
        const entry = { what: "batch", came: event.data.came, at: stamp(), drawn: null };
        entry.moves = event.data.messages.some((message) => message.type === "SetPositionMessage");
        window.seen.push(entry);
        requestAnimationFrame(() => requestAnimationFrame(() => (entry.drawn = stamp())));
      }
      return handle.call(this, event);
    };
  }
};
