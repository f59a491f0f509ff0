// What the page keeps in this browser: texts of the session, and pronunciations. Without storage it forgets them.

const stores = { session: () => sessionStorage, local: () => localStorage };

export class Memory {
  // place: "session" until the tab is closed, or "local".
  constructor(place, name, empty) {
    this.place = place;
    this.name = `vivavoce.${name}`;
    this.value = empty;
    try {
      this.value = JSON.parse(stores[place]().getItem(this.name)) ?? empty;
    } catch { /* switched off, or written by another program */ }
  }

  set(value) {
    this.value = value;
    try {
      stores[this.place]().setItem(this.name, JSON.stringify(value));
    } catch { /* switched off or full */ }
  }
}
