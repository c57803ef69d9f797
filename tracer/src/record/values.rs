//! Values of calls: which are fetched, how the kernel side is told, and what its words mean.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use rtrace_bpf::wire::{CallRecord, CallWords, FetchFlag, FetchRecord, ProgramRecord, SumRecord, vector_slot};
use rtrace_bpf::{MAX_PROGRAMS, MAX_SUMS, Programs};
use rtrace_code::arrival::Keeps;
use rtrace_code::copies::Registers;
use rtrace_code::errno::Errno;
use rtrace_model::{
    Base, Definition, EventKind, LocationId, Metric, MetricId, RegionId, Scope, Span, ValueBatch, ValueColumn,
    ValueType, Values,
};
use rtrace_plan::{Capture, LibrarySource, Plan, PlannedRegion};
use rtrace_signatures::{
    At, ColumnType, Fetch, FetchProgram, ListElement, MOST_ELEMENTS, MOST_VALUE_WORDS, MetricUnit, Op, OpCode,
};

/// The words of values that a call of these libraries has at most.
pub fn words(sources: &[LibrarySource]) -> u32 {
    let captures = sources.iter().flat_map(|source| source.captures.values());
    captures.map(|capture| u32::from(capture.program.words.max(1))).max().unwrap_or_default()
}

/// What is read of calls of these libraries when they return; of results all, for those that are loaded later.
pub fn read_at_return(sources: &[LibrarySource]) -> Keeps {
    let captures = sources.iter().flat_map(|source| source.captures.values());
    let read = captures.fold(Keeps::default(), |all, capture| all.or(capture.keeps_at_return()));
    if read.result > 0 { Keeps { result: Keeps::READABLE.result, ..read } } else { read }
}

/// What is counted by values of calls, by name; ids count up from `first`.
pub fn metrics(sources: &[LibrarySource], first: MetricId) -> Vec<Metric> {
    let captures = sources.iter().flat_map(|source| source.captures.values());
    let metrics = captures.flat_map(|capture| &capture.signature.metrics);
    let named: BTreeMap<&str, MetricUnit> = metrics.map(|metric| (metric.name.as_str(), metric.unit)).collect();
    (first.0..)
        .zip(named)
        .map(|(id, (name, unit))| Metric {
            id: MetricId(id),
            name: name.to_owned(),
            unit: unit.name().to_owned(),
            base: Base::Decimal,
            exponent: 0,
            scope: Scope::Call,
            span: Span::SinceStart,
        })
        .collect()
}

/// What a recording was prepared for when it began, which libraries that are loaded later have to do with.
#[derive(Debug)]
pub struct Prepared<'a> {
    /// Words of values that a call has at most.
    pub words: usize,
    /// What is counted on every call, in the order of the counters.
    pub metrics: &'a [Metric],
    /// What return sites leave as it is.
    pub at_return: Keeps,
}

impl Prepared<'_> {
    /// What is in the way of a region's values, or of one of its metrics.
    fn obstacle(&self, region: RegionId, capture: &Capture) -> Option<ValueObstacle> {
        let metrics = &capture.signature.metrics;
        let at_return = capture.keeps_at_return();
        if region.0 >= MAX_PROGRAMS {
            Some(ValueObstacle::TooManyRegions)
        } else if usize::from(capture.program.words) > self.words {
            Some(ValueObstacle::TooManyWords)
        } else if at_return.and(self.at_return) != at_return {
            Some(ValueObstacle::AtReturn)
        } else if metrics.len() > MAX_SUMS {
            Some(ValueObstacle::TooManyMetrics)
        } else {
            let is_counted = |name: &str| self.metrics.iter().any(|counter| counter.name == name);
            metrics
                .iter()
                .find(|metric| !is_counted(&metric.name))
                .map(|metric| ValueObstacle::Metric(metric.name.clone()))
        }
    }
}

/// Why values are not recorded that a plan has.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ValueObstacle {
    TooManyRegions,
    TooManyWords,
    AtReturn,
    TooManyMetrics,
    Metric(String),
    Stub,
    NoStub(String),
}

impl fmt::Display for ValueObstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let late = "the library was loaded after the recording had begun";
        match self {
            ValueObstacle::TooManyRegions => write!(f, "only {MAX_PROGRAMS} functions may have values"),
            ValueObstacle::TooManyWords => write!(f, "{late}, and its calls have more values than others"),
            ValueObstacle::AtReturn => write!(f, "{late}, and others have no such values at their returns"),
            ValueObstacle::TooManyMetrics => write!(f, "it has more than {MAX_SUMS} metrics"),
            ValueObstacle::Stub => write!(f, "`errno` is not known of calls that come by its stub"),
            ValueObstacle::NoStub(reason) => {
                write!(f, "only a stub can read vector registers, and it has none: {reason}")
            }
            ValueObstacle::Metric(name) => write!(f, "{late}, and its metric {name} is not counted"),
        }
    }
}

/// What is fetched of the calls of which region.
#[derive(Debug, Default)]
pub struct Captured {
    by_region: Mutex<HashMap<u32, Arc<Capture>>>,
    missing: Mutex<Vec<EventKind>>,
}

impl Captured {
    /// Tells the kernel side what to fetch of the calls of a plan's regions.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn add(&self, programs: &Programs, plan: &Plan, prepared: &Prepared<'_>) -> Result<(), rtrace_bpf::Error> {
        let mut captured = self.by_region.lock().unwrap_or_else(PoisonError::into_inner);
        let mut missing = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
        for library in &plan.libraries {
            for planned in &library.regions {
                let Some(capture) = &planned.capture else { continue };
                let region = &planned.region;
                let mut tell = |obstacle: ValueObstacle| {
                    let (library, region) = (library.library.path.clone(), region.name.clone());
                    missing.push(EventKind::NoValues { library, region, reason: obstacle.to_string() });
                };
                if let Some(obstacle) = prepared.obstacle(region.id, capture) {
                    tell(obstacle);
                    continue;
                }
                let errno = errno(planned, capture);
                if errno.is_some_and(|(_, flag)| flag == FetchFlag::RT_FETCH_WORDS) && planned.stub().is_some() {
                    tell(ValueObstacle::Stub);
                }
                if !capture.vectors().is_empty()
                    && let Some(reason) = no_stub(planned)
                {
                    tell(ValueObstacle::NoStub(reason));
                }
                programs
                    .set_program(region.id.0, &record_of(capture, prepared.metrics, errno, &planned.entry.registers))?;
                captured.insert(region.id.0, Arc::clone(capture));
            }
        }
        Ok(())
    }

    /// What could not be fetched that was to be added, told once.
    pub fn take_missing(&self) -> Vec<EventKind> {
        std::mem::take(&mut self.missing.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The columns of a plan's regions.
    pub fn columns(&self, plan: &Plan) -> Vec<Definition> {
        let captured = self.by_region.lock().unwrap_or_else(PoisonError::into_inner);
        let regions = plan.libraries.iter().flat_map(|library| &library.regions).map(|planned| planned.region.id);
        let captures = regions.filter_map(|id| Some((id, captured.get(&id.0)?)));
        captures.flat_map(|(id, capture)| columns(id, capture)).map(Definition::ValueColumn).collect()
    }

    /// The values of these calls, by region.
    pub fn batches<'r>(&self, values: impl Iterator<Item = (&'r CallRecord, &'r CallWords)>) -> Vec<ValueBatch> {
        let captured = self.by_region.lock().unwrap_or_else(PoisonError::into_inner);
        let mut batches: BTreeMap<u32, ValueBatch> = BTreeMap::new();
        for (call, values) in values {
            let Some(capture) = captured.get(&call.region) else { continue };
            let batch = batches.entry(call.region).or_insert_with(|| ValueBatch {
                region: RegionId(call.region),
                calls: Vec::new(),
                columns: capture.signature.columns.iter().map(|column| Values::new(type_of(column.ctype))).collect(),
            });
            batch.calls.push((LocationId(call.location), call.id));
            push(capture, values, &mut batch.columns);
        }
        batches.into_values().collect()
    }
}

fn columns(region: RegionId, capture: &Capture) -> impl Iterator<Item = ValueColumn> {
    let source = capture.signature.source.to_string();
    (0..).zip(&capture.signature.columns).map(move |(position, column)| ValueColumn {
        region,
        position,
        name: column.name.clone(),
        value_type: type_of(column.ctype),
        c_type: column.c_type.clone(),
        unit: column.unit.clone(),
        role: column.role.map(|role| role.name().to_owned()),
        at_exit: column.at == At::Exit,
        source: source.clone(),
    })
}

fn type_of(kind: ColumnType) -> ValueType {
    match kind {
        ColumnType::Text(_) | ColumnType::List(_) => ValueType::Text,
        kind if kind.is_float() => ValueType::Float,
        _ => ValueType::Integer,
    }
}

/// Adds the values of one call.
fn push(capture: &Capture, values: &CallWords, columns: &mut [Values]) {
    let words = |place: usize| {
        let slots = capture.program.columns[place];
        let words = values.words(usize::from(slots.first), usize::from(slots.words));
        words.filter(|_| values.values.failed & slots.fetches == 0)
    };
    let holds = |place: usize| {
        capture.signature.columns[place].condition.as_ref().is_none_or(|condition| {
            let of = capture.signature.columns.iter().position(|column| column.name == condition.column);
            let value = of.and_then(words).and_then(|words| words.first());
            value.is_some_and(|&value| condition.comparison.holds(value.cast_signed(), condition.value))
        })
    };
    for (place, values) in columns.iter_mut().enumerate() {
        let words = words(place).filter(|_| holds(place));
        let kind = capture.signature.columns[place].ctype;
        match values {
            Values::Integer(values) => {
                values.push(words.and_then(|words| words.first()).map(|word| word.cast_signed()))
            }
            Values::Float(values) => values.push(words.and_then(|words| float(kind, words))),
            Values::Text(values) => values.push(words.map(|words| match kind {
                ColumnType::List(element) => list(element, words),
                _ => text(words),
            })),
        }
    }
}

fn float(kind: ColumnType, words: &[u64]) -> Option<f64> {
    match (kind, words) {
        (ColumnType::Float, [word, ..]) => Some(f32::from_bits(*word as u32).into()),
        (ColumnType::Double, [word, ..]) => Some(f64::from_bits(*word)),
        (ColumnType::LongDouble, [mantissa, top, ..]) => Some(extended(*mantissa, *top as u16)),
        _ => None,
    }
}

/// The nearest `f64` of an x87 number: a mantissa with its leading one, and an exponent with the sign. Intel's manual,
/// volume 1, section 4.2.2.
fn extended(mantissa: u64, top: u16) -> f64 {
    let sign = if top >> 15 == 1 { -1.0 } else { 1.0 };
    match i32::from(top & 0x7fff) {
        0x7fff if mantissa << 1 == 0 => sign * f64::INFINITY,
        0x7fff => f64::NAN,
        // In two steps: one factor alone may be beyond what there is.
        exponent => sign * (mantissa as f64 * 2_f64.powi(-63)) * 2_f64.powi((exponent - 16383).clamp(-1200, 1100)),
    }
}

/// The elements of a list, as readers of text can take them apart.
fn list(element: ListElement, words: &[u64]) -> String {
    let elements: Vec<String> = element.values(words).map(|value| value.to_string()).collect();
    elements.join(",")
}

fn text(words: &[u64]) -> String {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).take_while(|&byte| byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Why a function has no stub.
fn no_stub(planned: &PlannedRegion) -> Option<String> {
    match &planned.stub {
        Some(Ok(_)) => None,
        Some(Err(reason)) => Some(reason.to_string()),
        None => Some("the program has none".to_owned()),
    }
}

/// How the kernel side finds the address of `errno`, if it is read, where the region's entry is seen; a stub is elsewhere.
fn errno(planned: &PlannedRegion, capture: &Capture) -> Option<(i32, FetchFlag)> {
    if !capture.program.fetches.iter().any(|fetch| fetch.op.code == OpCode::ErrnoAddress) {
        return None;
    }
    let site = capture.address + (planned.entry.file_offset - planned.region.file_offset);
    match capture.errno? {
        Errno::Distance(distance) => Some((distance, FetchFlag(0))),
        Errno::Slot(slot) => {
            let distance = i32::try_from(slot.cast_signed() - site.cast_signed()).ok()?;
            Some((distance, FetchFlag::RT_FETCH_WORDS))
        }
    }
}

/// The program as the kernel side takes it, which finds registers there where the region's entry is seen.
fn record_of(
    capture: &Capture,
    metrics: &[Metric],
    errno: Option<(i32, FetchFlag)>,
    registers: &Registers,
) -> ProgramRecord {
    let FetchProgram { fetches, metrics: slots, .. } = &capture.program;
    let mut record = ProgramRecord {
        enters: capture.program.at_enter() as u8,
        count: fetches.len() as u8,
        lists: capture.program.has_lists().into(),
        ..ProgramRecord::default()
    };
    for (place, fetch) in record.fetch.iter_mut().zip(fetches) {
        *place = fetch_of(fetch, errno, registers);
    }
    let counted =
        capture.signature.metrics.iter().zip(slots).filter_map(|(metric, slots)| {
            Some((metrics.iter().position(|counter| counter.name == metric.name)?, slots))
        });
    for (place, (counter, slots)) in record.sum.iter_mut().zip(counted) {
        *place = SumRecord { counter: counter as u8, word: slots.first, needs: slots.fetches, reserved: 0 };
        record.sums += 1;
    }
    record
}

fn fetch_of(fetch: &Fetch, errno: Option<(i32, FetchFlag)>, registers: &Registers) -> FetchRecord {
    let Op { code, number, width, .. } = fetch.op;
    let [source, second] = fetch.operands;
    let flag = |is_set, flag: FetchFlag| if is_set { flag.0 } else { 0 };
    let flags = (u32::from(width.bytes) * 8 - 1)
        | flag(width.signed, FetchFlag::RT_FETCH_SIGNED)
        | flag(second.is_some(), FetchFlag::RT_FETCH_WORDS);
    let (op, target, source) = (code as u8, fetch.target, source.unwrap_or(0));
    let number = second.map_or(number, i32::from);
    let record = FetchRecord { op, target, source, flags: flags as u8, number };
    match (code, errno) {
        (OpCode::List | OpCode::Sum | OpCode::Keep | OpCode::Kept, _) => {
            let is_listed = code == OpCode::List && fetch.op.at == At::Exit;
            let target = if is_listed { target - MOST_VALUE_WORDS as u8 } else { target };
            let number = fetch.op.number | i32::from(MOST_ELEMENTS) << 8 | i32::from(second.unwrap_or(0)) << 16;
            FetchRecord { target, number, ..record }
        }
        (OpCode::Register, _) => FetchRecord { source: registers.of(number as u8), number: 0, ..record },
        (OpCode::Vector, _) => FetchRecord { number: vector_slot(number as u8).into(), ..record },
        (OpCode::ErrnoAddress, Some((number, flag))) => {
            FetchRecord { number, flags: record.flags | flag.0 as u8, ..record }
        }
        // Behind a null pointer, nothing is read.
        (OpCode::ErrnoAddress, None) => FetchRecord { op: OpCode::Number as u8, ..record },
        _ => record,
    }
}

#[cfg(test)]
mod tests {
    use rtrace_bpf::wire::FetchCode;

    use super::*;

    #[test]
    fn operations_have_the_numbers_of_the_kernel_side() {
        let pairs = [
            (OpCode::Register, FetchCode::RT_FETCH_REGISTER),
            (OpCode::Stack, FetchCode::RT_FETCH_STACK),
            (OpCode::Memory, FetchCode::RT_FETCH_MEMORY),
            (OpCode::Text, FetchCode::RT_FETCH_TEXT),
            (OpCode::Result, FetchCode::RT_FETCH_RESULT),
            (OpCode::List, FetchCode::RT_FETCH_LIST),
            (OpCode::Number, FetchCode::RT_FETCH_NUMBER),
            (OpCode::Shift, FetchCode::RT_FETCH_SHIFT),
            (OpCode::Multiply, FetchCode::RT_FETCH_MULTIPLY),
            (OpCode::Add, FetchCode::RT_FETCH_ADD),
            (OpCode::Subtract, FetchCode::RT_FETCH_SUBTRACT),
            (OpCode::Max, FetchCode::RT_FETCH_MAX),
            (OpCode::Min, FetchCode::RT_FETCH_MIN),
            (OpCode::ErrnoAddress, FetchCode::RT_FETCH_VARIABLE),
            (OpCode::Vector, FetchCode::RT_FETCH_VECTOR),
            (OpCode::Tagged, FetchCode::RT_FETCH_TAGGED),
            (OpCode::Cpu, FetchCode::RT_FETCH_CPU),
            (OpCode::Keep, FetchCode::RT_FETCH_KEEP),
            (OpCode::Kept, FetchCode::RT_FETCH_KEPT),
            (OpCode::Sum, FetchCode::RT_FETCH_SUM),
        ];
        assert!(pairs.iter().all(|(ours, theirs)| *ours as u32 == theirs.0));
    }

    #[test]
    fn numbers_of_the_x87_are_the_nearest_doubles() {
        // 1.0, -2.5, 0.0, the largest and the smallest finite one, infinity.
        assert_eq!(extended(1 << 63, 16383), 1.0);
        assert_eq!(extended(0xa << 60, 0x8000 | 16384), -2.5);
        assert_eq!(extended(0, 0), 0.0);
        assert_eq!(extended(u64::MAX, 0x7ffe), f64::INFINITY);
        assert_eq!(extended(1, 0), 0.0);
        assert_eq!(extended(1 << 63, 0xffff), f64::NEG_INFINITY);
        assert!(extended(u64::MAX, 0x7fff).is_nan());
    }

    #[test]
    fn texts_end_before_the_first_zero() {
        let word = |text: &[u8; 8]| u64::from_ne_bytes(*text);
        assert_eq!(text(&[word(b"/etc/pas"), word(b"swd\0????")]), "/etc/passwd");
        assert_eq!(text(&[word(b"\xff\xfeab\0\0\0\0")]), "\u{fffd}\u{fffd}ab");
        assert_eq!(text(&[0]), "");
    }
}
