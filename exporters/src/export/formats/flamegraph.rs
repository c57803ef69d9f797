//! A flame graph as one SVG file that needs nothing else: a box per call path, as wide as its time,
//! under the box of its caller. In a browser, a click zooms in, Escape out, and `/` asks for a word
//! and marks the functions whose names hold it.

use std::io::{self, Write};

use rtrace_model::{escape, format_ns};

use super::super::format::{Form, Format};
use super::super::paths::{Paths, Roots, readable, remarkable};
use super::super::remarks::remarks;
use super::super::step::Step;
use super::super::{ExportError, Source};

pub(super) const FORMAT: Format = Format {
    name: "flamegraph",
    summary: "Flame graph: an SVG file that zooms and searches",
    extension: "svg",
    opens_in: "any browser",
    keeps: "time and number of calls of every call path, by process, threads together; endings; losses in the caption",
    omits: "threads, times of single calls, counters; paths narrower than a tenth of a pixel",
    untimed: "counted, a box as wide as their timed callees",
    form: Form::File(write),
};

/// Zooming and searching.
const SCRIPT: &str = include_str!("flamegraph/zoom.js");

/// All lengths are in pixels.
const WIDTH: f64 = 1200.0;
const ROW: usize = 17;
const MARGIN: usize = 64;
const NARROWEST: f64 = 0.1;

/// Width of a letter of the font in use.
const LETTER: f64 = 7.0;

fn write(source: &Source<'_>, output: &mut dyn Write) -> Result<(), ExportError> {
    let paths = Paths::collect(source, Roots::Process)?;
    let graph = Graph::new(&paths);
    let height = MARGIN + ROW * (graph.depth + 1);
    writeln!(
        output,
        r#"<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" font-family="monospace" font-size="12">
<style>rect {{ stroke: white; stroke-width: 0.5 }} g {{ cursor: pointer }} .marked rect {{ fill: #c6f }}</style>
<rect width="100%" height="100%" fill="white"/>"#
    )?;
    let host = source.header().host.as_str();
    let title = format!("{} of traced calls on {host}", format_ns(graph.whole));
    writeln!(output, r#"<text x="8" y="20" font-size="15">{}</text>"#, text(&title))?;
    let summary = remarks(source)?.into_iter().find(|(name, _)| *name == "summary");
    writeln!(output, r#"<text x="8" y="38">{}</text>"#, text(&summary.map(|(_, line)| line).unwrap_or_default()))?;
    writeln!(output, r#"<text x="8" y="56" id="told"></text>"#)?;
    graph.write(source, &paths, output)?;
    writeln!(output, "<script><![CDATA[\n{SCRIPT}]]></script>\n</svg>")?;
    Ok(())
}

/// Widths and places of the boxes, in ns.
struct Graph {
    /// Time of each path with all that it begins.
    widths: Vec<u64>,
    children: Vec<Vec<usize>>,
    roots: Vec<usize>,
    whole: u64,
    depth: usize,
}

impl Graph {
    fn new(paths: &Paths) -> Graph {
        let mut widths: Vec<u64> = paths.all.iter().map(|path| path.exclusive).collect();
        let (mut children, mut roots) = (vec![Vec::new(); widths.len()], Vec::new());
        let (mut depths, mut depth) = (vec![0; widths.len()], 0);
        for (place, path) in paths.all.iter().enumerate() {
            match path.parent {
                Some(parent) => {
                    children[parent].push(place);
                    depths[place] = depths[parent] + 1;
                    depth = depth.max(depths[place]);
                }
                None => roots.push(place),
            }
        }
        // A path comes after the one that it continues.
        for (place, path) in paths.all.iter().enumerate().rev() {
            if let Some(parent) = path.parent {
                widths[parent] = widths[parent].saturating_add(widths[place]);
            }
        }
        let whole = roots.iter().map(|&root| widths[root]).fold(0, u64::saturating_add);
        Graph { widths, children, roots, whole, depth }
    }

    fn write(&self, source: &Source<'_>, paths: &Paths, output: &mut dyn Write) -> io::Result<()> {
        let scale = WIDTH / self.whole.max(1) as f64;
        let mut left = 0;
        let mut todo = Vec::new();
        for &root in &self.roots {
            todo.push((root, left, 0));
            left += self.widths[root];
        }
        while let Some((place, left, row)) = todo.pop() {
            let (x, width) = (left as f64 * scale, self.widths[place] as f64 * scale);
            if width < NARROWEST {
                continue;
            }
            let path = &paths.all[place];
            let y = MARGIN + row * ROW;
            let name = source.step(path.step);
            let letters = (width / LETTER) as usize;
            let visible: String = name.chars().take(if letters < 3 { 0 } else { letters }).collect();
            writeln!(
                output,
                r#"<g><title>{}: {}</title><rect x="{x:.2}" y="{y}" width="{width:.2}" height="{}" fill="{}"/><text x="{:.2}" y="{}">{}</text></g>"#,
                text(&name),
                text(&self.described(paths, place)),
                ROW - 1,
                colour(source, path.step),
                x + 3.0,
                y + 12,
                text(&visible),
            )?;
            let mut left = left;
            for &child in &self.children[place] {
                todo.push((child, left, row + 1));
                left += self.widths[child];
            }
        }
        Ok(())
    }

    fn described(&self, paths: &Paths, place: usize) -> String {
        let (path, width) = (&paths.all[place], self.widths[place]);
        let share = 100.0 * width as f64 / self.whole.max(1) as f64;
        let mut said = format!("{} ({share:.2} %)", format_ns(width));
        if let Step::Function(_) = path.step {
            said.push_str(&format!(", {} own, {} calls", readable(path.exclusive, path.endings), path.calls()));
            remarkable(path.endings).for_each(|(ending, calls)| said.push_str(&format!(", {calls} {ending}")));
        }
        said
    }
}

/// Functions of one library have hues alike, and a function has the same colour in every graph.
fn colour(source: &Source<'_>, step: Step) -> String {
    let hash = |text: &str| text.bytes().fold(5_381_u32, |hash, byte| hash.wrapping_mul(33) ^ u32::from(byte));
    match step {
        Step::Function(region) => {
            let (library, function) = (hash(source.library_of(region)), hash(source.function(region)));
            format!("hsl({},{}%,{}%)", library % 70, 70 + function % 30, 58 + function / 30 % 14)
        }
        _ => "#ccc".to_owned(),
    }
}

/// A text inside an element.
fn text(text: &str) -> String {
    escape(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
