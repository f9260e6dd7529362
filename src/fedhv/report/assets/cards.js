// A card for every run that is active or has problems: progress, time left, and what its history says about its health.

function showCards(data, setting) {
  const all = data.settings.flatMap((each) => each.runs.map((run) => ({ run, setting: each })));
  const here = data.live ? all : all.filter(({ run }) => !run.finished || run.health.some(({ bad }) => bad));
  const order = here.sort((a, b) => a.run.finished - b.run.finished);
  const shownCards = order.slice(0, 24);
  byId("going").hidden = !order.length;
  byId("going-note").textContent = order.length > shownCards.length ? `${order.length - shownCards.length} more runs are in the table below.` : "";
  keyed(byId("cards"), shownCards, keyOfRun, () => el("article", { class: "tile card" },
    el("h3"), el("div", { class: "quiet about" }), el("progress"), el("div", { class: "left" }), el("ul", { class: "health" })), updateCard);
}

function updateCard(card, { run, setting }) {
  const [head, about, bar, left, health] = card.children;
  head.textContent = run.name;
  about.textContent = `${setting.name} · ${run.label} · seed ${run.seed}`;
  Object.assign(bar, { max: run.planned || 1, value: run.rounds });
  bar.setAttribute("aria-label", `Rounds of ${run.name}`);
  const judged = setting.mains ? run.worst_main : run.worst_accuracy, latest = judged?.at(-1);
  left.textContent = [
    run.finished ? `finished, ${plural(run.rounds, "round")}` : `${run.rounds} of ${run.planned} rounds`,
    !run.finished && run.left !== null ? `about ${amount("seconds", Math.max(1, run.left))} left` : null,
    latest === null || latest === undefined ? null : `worst task ${setting.mains ? `${fixed(latest, setting.mains[0].digits)} (${setting.mains[0].name})` : `${fixed(latest, 1)} %`}`,
  ].filter(Boolean).join(" · ");
  const well = run.rounds ? [{ text: "healthy: no floor hit, no reply refused, all values finite", bad: false }] : [];
  health.replaceChildren(...(run.health.length ? run.health : well).map(({ text, bad }) => el("li", { class: bad ? "bad" : null, text })));
}
