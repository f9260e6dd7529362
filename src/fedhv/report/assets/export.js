// Every chart as a file: SVG as it is drawn, PNG from the same drawing at twice its size.

const FILE_WIDTH = 900;

function asText(picture) {
  return new XMLSerializer().serializeToString(picture);
}

function saveSvg(name, picture) {
  save(`${name}.svg`, "image/svg+xml", asText(picture));
}

function savePng(name, picture, times = 2) {
  const image = new Image();
  const width = Number(picture.getAttribute("width")), height = Number(picture.getAttribute("height"));
  image.onload = () => {
    const sheet = el("canvas", { width: times * width, height: times * height });
    sheet.getContext("2d").drawImage(image, 0, 0, times * width, times * height);
    sheet.toBlob((blob) => saveBlob(`${name}.png`, blob), "image/png");
  };
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(asText(picture))}`;
}

// The buttons above a chart; `picture` makes the drawing when one of them is pressed.
function fileButtons(name, title, picture) {
  const button = (kind, press) => el("button", { type: "button", class: "small", text: kind, "aria-label": `Save ${title} as ${kind}`, onclick: press });
  return [button("PNG", () => savePng(name, picture())), button("SVG", () => saveSvg(name, picture()))];
}
