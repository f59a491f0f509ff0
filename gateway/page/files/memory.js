// What the page keeps in this browser: texts of the session, and pronunciations. Without storage it forgets them.

const stores = { session: () => sessionStorage, local: () => localStorage };

export class Memory {
  // place: "session" until the tab is closed, or "local". changed: called when another tab has set it.
  constructor(place, name, empty, changed = () => {}) {
    this.place = place;
    this.name = `vivavoce.${name}`;
    this.empty = empty;
    this.value = empty;
    try {
      this.read(stores[place]().getItem(this.name));
    } catch { /* switched off, or written by another program */ }
    addEventListener("storage", ({ key, newValue }) => { if (key === this.name) { this.read(newValue); changed(); } });
  }

  read(text) { this.value = JSON.parse(text) ?? this.empty; }

  set(value) {
    this.value = value;
    try {
      stores[this.place]().setItem(this.name, JSON.stringify(value));
    } catch { /* switched off or full */ }
  }
}
