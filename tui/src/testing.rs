//! What tests of views share.

use ratatui::buffer::Buffer;

/// The screen as lines of text.
pub fn screen(buffer: &Buffer) -> String {
    let width = usize::from(buffer.area.width).max(1);
    let mut text = String::new();
    for line in buffer.content().chunks(width) {
        let line: String = line.iter().map(|cell| cell.symbol()).collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}
