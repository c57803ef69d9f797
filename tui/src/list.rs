//! A list that a user moves through while it changes.

/// Rows by their keys, with one chosen. The choice follows its row; until one is made, it is the
/// first row, whichever that is.
#[derive(Clone, Debug)]
pub struct List<K> {
    rows: Vec<K>,
    chosen: Option<K>,
    /// Row in which the choice stands, where its key has gone.
    place: usize,
    /// First row on the screen.
    top: usize,
    /// Rows on the screen.
    height: usize,
}

impl<K> Default for List<K> {
    fn default() -> List<K> {
        List { rows: Vec::new(), chosen: None, place: 0, top: 0, height: 1 }
    }
}

impl<K: Copy + PartialEq> List<K> {
    /// Replaces the rows.
    pub fn set(&mut self, rows: Vec<K>) {
        self.rows = rows;
        let found = self.chosen.and_then(|chosen| self.rows.iter().position(|&row| row == chosen));
        let last = self.rows.len().saturating_sub(1);
        self.place = found.unwrap_or(if self.chosen.is_some() { self.place } else { 0 }).min(last);
    }

    /// All rows.
    pub fn rows(&self) -> &[K] {
        &self.rows
    }

    /// The key of the row chosen.
    pub fn key(&self) -> Option<K> {
        self.rows.get(self.place).copied()
    }

    /// Chooses the row of a key, if there is one.
    pub fn choose_key(&mut self, key: K) {
        if let Some(place) = self.rows.iter().position(|&row| row == key) {
            self.choose(place);
        }
    }

    /// Chooses the row of a key once there is one.
    pub fn want(&mut self, key: K) {
        self.chosen = Some(key);
    }

    /// The rows for a screen of this height, with their places; it moves as little as the choice
    /// allows.
    pub fn on_screen(&mut self, height: usize) -> Vec<(usize, K)> {
        self.height = height.max(1);
        let last_top = self.rows.len().saturating_sub(self.height);
        self.top = self.top.clamp((self.place + 1).saturating_sub(self.height), self.place).min(last_top);
        self.rows.iter().copied().enumerate().skip(self.top).take(self.height).collect()
    }
}

/// What all lists can do, whatever their keys are.
pub trait Rows {
    /// Moves the choice by a number of rows, down where positive.
    fn step(&mut self, rows: isize) {
        self.choose(self.place().saturating_add_signed(rows));
    }

    /// Chooses a row.
    fn choose(&mut self, place: usize);

    /// The row chosen.
    fn place(&self) -> usize;

    /// Rows to move by a page.
    fn page(&self) -> isize;
}

impl<K: Copy + PartialEq> Rows for List<K> {
    fn choose(&mut self, place: usize) {
        self.place = place.min(self.rows.len().saturating_sub(1));
        self.chosen = if self.place == 0 { None } else { self.key() };
    }

    fn place(&self) -> usize {
        self.place
    }

    fn page(&self) -> isize {
        self.height.saturating_sub(1).max(1).cast_signed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_choice_follows_its_row_and_the_first_row_stays_first() {
        let mut list = List::default();
        list.set(vec!['a', 'b', 'c']);
        list.set(vec!['c', 'a', 'b']);
        assert_eq!(list.key(), Some('c'));
        list.step(1);
        list.set(vec!['b', 'c', 'a']);
        assert_eq!((list.key(), list.place()), (Some('a'), 2));
        list.set(vec!['b', 'c']);
        assert_eq!(list.key(), Some('c'));
    }

    #[test]
    fn the_screen_moves_as_little_as_needed() {
        let mut list = List::default();
        list.set((0..50).collect());
        list.step(30);
        assert_eq!(list.on_screen(20)[0], (11, 11));
        list.step(-10);
        assert_eq!(list.on_screen(20)[0].0, 11);
        list.step(-10);
        assert_eq!(list.on_screen(20)[0].0, 10);
        assert_eq!(list.on_screen(48)[0].0, 2);
        list.step(isize::MAX);
        assert_eq!(list.key(), Some(49));
        list.set(Vec::new());
        assert_eq!((list.key(), list.on_screen(5).len()), (None, 0));
    }
}
