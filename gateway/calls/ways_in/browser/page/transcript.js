// The transcript: one list item for each turn, its text in three parts: heard, being heard, not yet heard.
// A live region beside it gets each turn once, when it has been heard, so that a screen reader announces whole
// turns and not every word.

export class Transcript {
  constructor(list, liveRegion) {
    this.list = list;
    this.liveRegion = liveRegion;
    this.turns = new Map(); // by number of the turn
    this.turnsByUtterance = new Map(); // by number of the utterance, from its first audio on
  }

  // The turns of an earlier call stay above a line; the numbers of turns begin again.
  beginCall() {
    this.liveRegion.replaceChildren();
    if (this.list.children.length) this.append("again");
    this.turns.clear();
    this.turnsByUtterance.clear();
  }

  addQuestion(text) { this.append("asked").append(text); }

  addText(number, text) {
    let turn = this.turns.get(number);
    if (!turn) {
      const item = this.append("said");
      turn = { item, text: "", heard: document.createElement("span"), now: document.createElement("mark"),
        rest: document.createElement("span"), from: 0, to: 0 };
      turn.rest.className = "rest";
      item.append(turn.heard, turn.now, turn.rest);
      this.turns.set(number, turn);
    }
    turn.text += text;
    this.render(turn);
    this.scrollToEnd();
  }

  begin(utterance, number) {
    this.turnsByUtterance.set(utterance, this.turns.get(number));
  }

  markWord(utterance, start, stop) {
    const turn = this.turnsByUtterance.get(utterance);
    if (!turn) return;
    [turn.from, turn.to] = [start, stop];
    this.render(turn);
    this.keepInView(turn);
  }

  finish(utterance) {
    const turn = this.turnsByUtterance.get(utterance);
    if (!turn) return;
    [turn.from, turn.to] = [turn.text.length, turn.text.length];
    this.render(turn);
    this.announce(turn.text);
  }

  // The call is over: no word is being heard, and the rest will not be.
  close() {
    for (const turn of this.turns.values()) {
      turn.from = turn.to;
      if (turn.text.slice(turn.to).trim()) turn.item.classList.add("cut");
      this.render(turn);
    }
  }

  cut(utterance, heard) {
    const turn = this.turnsByUtterance.get(utterance);
    for (const other of this.turns.values()) {
      if (other === turn || (other.to === 0 && !this.hasAudio(other))) other.item.classList.add("cut");
    }
    if (!turn) return;
    [turn.from, turn.to] = [heard.length, heard.length];
    this.render(turn);
    this.announce(heard);
  }

  // A new element each time: the same text heard twice is announced twice.
  announce(text) {
    if (!text.trim()) return;
    const heard = document.createElement("p");
    heard.textContent = text;
    this.liveRegion.replaceChildren(heard);
  }

  hasAudio(turn) { return [...this.turnsByUtterance.values()].includes(turn); }

  append(kind) {
    const item = document.createElement("li");
    item.className = kind;
    this.list.append(item);
    this.scrollToEnd();
    return item;
  }

  // Scrolls the list only; scrollIntoView would scroll the page as well.
  keepInView({ now }) {
    const [word, list] = [now.getBoundingClientRect(), this.list.getBoundingClientRect()];
    if (word.bottom > list.bottom) this.list.scrollTop += word.bottom - list.bottom + word.height;
    else if (word.top < list.top) this.list.scrollTop -= list.top - word.top + word.height;
  }

  scrollToEnd() { this.list.scrollTop = this.list.scrollHeight; }

  render(turn) {
    turn.heard.textContent = turn.text.slice(0, turn.from);
    turn.now.textContent = turn.text.slice(turn.from, turn.to);
    turn.rest.textContent = turn.text.slice(turn.to);
  }
}
