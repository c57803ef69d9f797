//! Cube's profile format: a tar archive with a description in XML, and for each metric the exclusive values of all call
//! paths and threads. See <https://www.scalasca.org/software/cube-4.x>.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

use rtrace_model::{LocationId, escape};

use super::super::format::{ExportFormat, Form};
use super::super::paths::{ExportPaths, PathFigures};
use super::super::remarks::remarks;
use super::super::samples;
use super::super::step::PathStep;
use super::super::{Excerpt, ExportError};

pub(super) const FORMAT: ExportFormat = ExportFormat {
    name: "cubex",
    summary: "Cube's profile: call paths by process and thread",
    extension: "cubex",
    opens_in: "Cube, its command-line tools, pyCubexR, Hatchet",
    keeps: "number of calls, exclusive time in ns, what tracing took of it, and counters of every call path, contexts, by process and thread; losses as attributes",
    omits: "times of single calls, endings",
    untimed: "counted, no time",
    form: Form::File(write),
};

/// Bytes of a header of the archive, and what contents are padded to.
const BLOCK: usize = 512;
/// What sizes in a header are below, in bytes, where they are octal.
const LARGEST_OCTAL: u64 = 1 << 33;

/// A metric, with what a call path has of it.
struct CubeMetric {
    name: String,
    unit: String,
    /// Whether it is a part of the metric before it.
    is_part: bool,
    value: Box<dyn Fn(&PathFigures) -> u64>,
}

/// The call paths of all threads together, numbered so that callers come before callees, those of one caller side by side.
struct CubeTree {
    /// Each with how deep it is.
    steps: Vec<(PathStep, usize)>,
    /// Where in the paths of the threads the figures of a call path and a thread are.
    figures: BTreeMap<(usize, usize), usize>,
    locations: Vec<LocationId>,
}

fn write(source: &Excerpt<'_>, output: &mut dyn Write) -> Result<(), ExportError> {
    let paths = ExportPaths::of_threads(source)?;
    let tree = CubeTree::of(&paths);
    let metrics = metrics(source);
    let mut anchor = Vec::new();
    describe(source, &tree, &metrics, &mut anchor)?;
    header(output, "anchor.xml", anchor.len() as u64)?;
    output.write_all(&anchor)?;
    pad(output, anchor.len() as u64)?;
    // The first call path stands for the program, and there are values of all.
    let nodes = tree.steps.len() + 1;
    let row = tree.locations.len().max(1);
    for (number, metric) in metrics.iter().enumerate() {
        let index = index(nodes);
        header(output, &format!("{number}.index"), index.len() as u64)?;
        output.write_all(&index)?;
        pad(output, index.len() as u64)?;
        let magic = b"CUBEX.DATA";
        let bytes = magic.len() as u64 + (nodes * row * size_of::<u64>()) as u64;
        header(output, &format!("{number}.data"), bytes)?;
        output.write_all(magic)?;
        for node in 0..nodes {
            for location in 0..row {
                let place = tree.figures.get(&(node, location));
                let value = place.map_or(0, |&place| (metric.value)(&paths.all[place].figures));
                output.write_all(&value.to_le_bytes())?;
            }
        }
        pad(output, bytes)?;
    }
    Ok(output.write_all(&[0; 2 * BLOCK])?)
}

fn metrics(source: &Excerpt<'_>) -> Vec<CubeMetric> {
    let metric = |name: &str, unit: &str, is_part, value| CubeMetric {
        name: name.to_owned(),
        unit: unit.to_owned(),
        is_part,
        value,
    };
    let mut metrics = vec![
        metric("visits", "occ", false, Box::new(|figures: &PathFigures| figures.totals.calls) as Box<_>),
        metric("time", "ns", false, Box::new(|figures: &PathFigures| figures.totals.exclusive)),
        metric("tracing", "ns", true, Box::new(|figures: &PathFigures| figures.totals.exclusive - figures.own())),
    ];
    metrics.extend(source.call_metrics().iter().enumerate().map(|(place, counted)| {
        let value = move |figures: &PathFigures| figures.counts.get(place).map_or(0, |count| count.exclusive);
        metric(&counted.name, &samples::unit(counted), false, Box::new(value))
    }));
    metrics
}

impl CubeTree {
    fn of(paths: &ExportPaths) -> CubeTree {
        let mut locations = Vec::new();
        // Node 0 is the program; by caller and step, in the order in which they are met.
        let mut places: HashMap<(usize, PathStep), usize> = HashMap::new();
        let (mut met, mut callees) = (vec![None], vec![Vec::new()]);
        let mut of_path = Vec::with_capacity(paths.all.len());
        for path in &paths.all {
            let (caller, location) = path.parent.map_or((0, 0), |parent| of_path[parent]);
            of_path.push(match path.step {
                PathStep::Program(_) => (0, 0),
                PathStep::Thread(location) => {
                    locations.push(location);
                    (0, locations.len() - 1)
                }
                step => {
                    let node = *places.entry((caller, step)).or_insert_with(|| {
                        met.push(Some(step));
                        callees.push(Vec::new());
                        callees[caller].push(met.len() - 1);
                        met.len() - 1
                    });
                    (node, location)
                }
            });
        }
        let (mut steps, mut numbers) = (Vec::new(), vec![0; met.len()]);
        let mut open: Vec<(usize, usize)> = callees[0].iter().rev().map(|&callee| (callee, 1)).collect();
        while let Some((node, depth)) = open.pop() {
            steps.extend(met[node].map(|step| (step, depth)));
            numbers[node] = steps.len();
            open.extend(callees[node].iter().rev().map(|&callee| (callee, depth + 1)));
        }
        let is_call = |(place, _): &(usize, &(usize, usize))| {
            matches!(paths.all[*place].step, PathStep::Function(_) | PathStep::Untraced(_))
        };
        let figures = of_path.iter().enumerate().filter(is_call);
        let figures = figures.map(|(place, &(node, location))| ((numbers[node], location), place)).collect();
        CubeTree { steps, figures, locations }
    }
}

/// What is in the archive, in XML.
fn describe(
    source: &Excerpt<'_>,
    tree: &CubeTree,
    metrics: &[CubeMetric],
    out: &mut Vec<u8>,
) -> Result<(), ExportError> {
    writeln!(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<cube version=\"4.4\">")?;
    for (name, text) in remarks(source)? {
        writeln!(out, "<attr key=\"{name}\" value=\"{}\"/>", xml(&text))?;
    }
    writeln!(out, "<metrics title=\"Metrics\">")?;
    for (number, CubeMetric { name, unit, .. }) in metrics.iter().enumerate() {
        let name = xml(name);
        write!(out, "<metric id=\"{number}\" type=\"EXCLUSIVE\"><disp_name>{name}</disp_name>")?;
        write!(out, "<uniq_name>{name}</uniq_name><dtype>UINT64</dtype><uom>{}</uom>", xml(unit))?;
        writeln!(out, "<val></val><url></url><descr></descr>")?;
        // A part closes the metric that it is a part of, too.
        let (is_part, is_followed) =
            (metrics[number].is_part, metrics.get(number + 1).is_some_and(|next| next.is_part));
        let ends = if is_followed { 0 } else { 1 + usize::from(is_part) };
        writeln!(out, "{}", "</metric>".repeat(ends))?;
    }
    writeln!(out, "</metrics>\n<program title=\"Call tree\">")?;
    let mut regions: HashMap<PathStep, usize> = HashMap::new();
    region(out, 0, source.header().command_line.join(" ").as_str(), "", (None, None))?;
    for &(step, _) in &tree.steps {
        let number = regions.len() + 1;
        if regions.contains_key(&step) {
            continue;
        }
        regions.insert(step, number);
        match step {
            PathStep::Function(id) => {
                region(out, number, &source.step(step), &source.symbol(id), source.begin_of(id))?;
            }
            _ => region(out, number, &source.step(step), "", (None, None))?,
        }
    }
    write!(out, "<cnode id=\"0\" calleeId=\"0\">")?;
    let mut depth = 0;
    for (place, (step, of_step)) in tree.steps.iter().enumerate() {
        // As deep as the one before it, or less: that one has ended, and some of its callers.
        writeln!(out, "{}", "</cnode>".repeat((depth + 1 - of_step).min(depth)))?;
        write!(out, "<cnode id=\"{}\" calleeId=\"{}\">", place + 1, regions[step])?;
        depth = *of_step;
    }
    writeln!(out, "{}</program>", "</cnode>".repeat(depth + 1))?;
    system(source, tree, out)?;
    Ok(writeln!(out, "</cube>")?)
}

fn region(
    out: &mut Vec<u8>,
    number: usize,
    name: &str,
    symbol: &str,
    (file, line): (Option<&str>, Option<u32>),
) -> io::Result<()> {
    let line = line.map_or(-1, i64::from);
    write!(out, "<region id=\"{number}\" mod=\"{}\" begin=\"{line}\" end=\"-1\">", xml(file.unwrap_or("")))?;
    write!(out, "<name>{}</name><mangled_name>{}</mangled_name>", xml(name), xml(symbol))?;
    writeln!(out, "<paradigm>unknown</paradigm><role>function</role><url></url><descr></descr></region>")
}

/// The processes and threads.
fn system(source: &Excerpt<'_>, tree: &CubeTree, out: &mut Vec<u8>) -> io::Result<()> {
    let host = xml(&source.header().host);
    writeln!(
        out,
        "<system title=\"System tree\">\n<systemtreenode Id=\"0\"><name>{host}</name><class>machine</class>"
    )?;
    let mut current = None;
    for (number, &location) in tree.locations.iter().enumerate() {
        let thread = source.threads.thread(location);
        if current != Some(thread.program) {
            let end = if current.is_some() { "</locationgroup>\n" } else { "" };
            current = Some(thread.program);
            let rank = source.threads.program(thread).rank.map_or(thread.program, |rank| rank as usize);
            let name = xml(&source.step(PathStep::Program(thread.program)));
            write!(out, "{end}<locationgroup Id=\"{}\"><name>{name}</name>", thread.program)?;
            writeln!(out, "<rank>{rank}</rank><type>process</type>")?;
        }
        let name = xml(&source.step(PathStep::Thread(location)));
        writeln!(
            out,
            "<location Id=\"{number}\"><name>{name}</name><rank>{number}</rank><type>thread</type></location>"
        )?;
    }
    let end = if current.is_some() { "</locationgroup>\n" } else { "" };
    writeln!(out, "{end}</systemtreenode>\n</system>")
}

fn xml(text: &str) -> String {
    escape(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Which call paths there are values of, by their places in the tree: all.
fn index(nodes: usize) -> Vec<u8> {
    // The byte order, the version, and that a list of places follows.
    let mut index = [&b"CUBEX.INDEX"[..], &1_u32.to_le_bytes(), &0_u16.to_le_bytes(), &[1]].concat();
    index.extend((nodes as u32).to_le_bytes());
    index.extend((0..nodes as u32).flat_map(u32::to_le_bytes));
    index
}

/// A header of the archive, as POSIX has it.
fn header(output: &mut dyn Write, name: &str, size: u64) -> io::Result<()> {
    let mut header = [0_u8; BLOCK];
    let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, name.as_bytes());
    put(100, b"0000644\x000000000\x000000000\x00");
    match size {
        0..LARGEST_OCTAL => put(124, format!("{size:011o}").as_bytes()),
        _ => {
            put(124, &[0x80]);
            put(128, &size.to_be_bytes());
        }
    }
    put(136, b"00000000000\0        0");
    put(257, b"ustar\x0000");
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    output.write_all(&header)
}

/// Fills the last block of what has so many bytes.
fn pad(output: &mut dyn Write, size: u64) -> io::Result<()> {
    let rest = (BLOCK - (size % BLOCK as u64) as usize) % BLOCK;
    output.write_all(&[0; BLOCK][..rest])
}
