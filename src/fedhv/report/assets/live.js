// A page that is being served asks every few seconds whether there is something new.

const SECONDS_BETWEEN_QUESTIONS = 2;

function follow(update) {
  const status = byId("live");
  status.hidden = false;
  status.textContent = "Live: following the runs.";
  let tag = null;
  async function ask() {
    try {
      const answer = await fetch("data.json", { cache: "no-store", headers: tag ? { "If-None-Match": tag } : {} });
      if (answer.status === 200) {
        tag = answer.headers.get("ETag");
        update(await answer.json());
        status.textContent = `Live: updated at ${new Date().toLocaleTimeString()}.`;
      } else if (answer.status !== 304) {
        status.textContent = `The server answered ${answer.status}; trying again.`;
      }
    } catch {
      status.textContent = "The server has stopped. The page shows the last data.";
    }
    setTimeout(ask, 1000 * SECONDS_BETWEEN_QUESTIONS);
  }
  setTimeout(ask, 1000 * SECONDS_BETWEEN_QUESTIONS);
}
