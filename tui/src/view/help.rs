//! The table of keys.

use ratatui::layout::Rect;
use ratatui::style::Style;

use crate::canvas::Canvas;
use crate::key::Help;

const KEYS: u16 = 11;
const GAP: u16 = 3;

/// All keys, or where there is not room for them, those of the view.
pub fn draw(canvas: &mut Canvas<'_>, area: Rect, keys: &[Help]) {
    let mut named: Vec<&Help> = keys.iter().filter(|help| !help.keys.names.is_empty()).collect();
    let height = usize::from(area.height.saturating_sub(1)).max(1);
    if named.len() > height {
        named.retain(|help| help.serves);
    }
    let columns = named.len().div_ceil(height);
    let width = area.width / u16::try_from(columns).unwrap_or(u16::MAX).max(1);
    canvas.put(area.x, area.y, area.width, "keys", canvas.theme.title());
    for (index, Help { keys, place, serves }) in named.into_iter().enumerate() {
        let (column, line) = (index / height, index % height);
        let x = area.x + u16::try_from(column).unwrap_or(u16::MAX).saturating_mul(width);
        let y = area.y + 1 + u16::try_from(line).unwrap_or(u16::MAX);
        let style = if *serves { Style::new() } else { canvas.theme.dim() };
        canvas.put(x, y, KEYS.min(width), keys.names, style.patch(canvas.theme.accent()));
        let does = if place.is_empty() { keys.does.to_owned() } else { format!("{place}: {}", keys.does) };
        canvas.put(x + KEYS, y, width.saturating_sub(KEYS + GAP), &does, style);
    }
}
