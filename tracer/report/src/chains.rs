//! Rows that tell functions apart by who called them: by their caller, by the whole call path, or by the call site.
//!
//! A program may have any number of call paths, and each row keeps a distribution of durations.
//! Above [`MOST_ROWS`] new ones are not told apart any more: they are one row.

use foldhash::HashMap;
use rtrace_exporters::{ChainId, Led, TraceSet, Untraced};
use rtrace_model::{CallSite, CallSiteId, ContextId, RegionId};
use rtrace_profile::Caller;
use std::borrow::Cow;

use super::key::{FUNCTION, RowId, function};
use super::table::{Column, Datum};

/// Rows that are told apart; with a histogram of 50 kB each they would take 800 MB.
const MOST_ROWS: usize = 1 << 14;

/// The row of all calls that are not told apart.
const MORE: RowId = RowId::MAX;

/// How much of the callers a row knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChainDepth {
    Caller,
    Path,
    Site,
}

/// The functions and their callers, as they appear.
pub(super) struct Chains<'a> {
    trace: &'a TraceSet,
    depth: ChainDepth,
    /// Rows by their key.
    links: Vec<ChainLink>,
    keys: HashMap<ChainLink, RowId>,
    /// What led to calls, of whole call paths.
    led: Untraced,
    /// By untraced function and file: the first of its call sites, which stands for all.
    untraced: HashMap<(Option<&'a str>, Option<&'a str>), CallSiteId>,
    /// By context: its innermost line of an interpreted function.
    interpreted: HashMap<ContextId, Option<CallSiteId>>,
}

/// What makes a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct ChainLink {
    from: From,
    /// The untraced functions between, where whole call paths are told apart.
    via: Option<ChainId>,
    region: RegionId,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum From {
    Nobody,
    /// A call site; unless sites are told apart, the untraced function around it.
    Site(CallSiteId),
    /// A call that is not on record.
    Lost,
    Region(RegionId),
    /// The call path of that row.
    Path(RowId),
}

impl<'a> Chains<'a> {
    pub(super) fn new(depth: ChainDepth, trace: &'a TraceSet) -> Chains<'a> {
        let (keys, untraced) = (HashMap::default(), HashMap::default());
        let interpreted = HashMap::default();
        Chains { trace, depth, links: Vec::new(), keys, led: Untraced::default(), untraced, interpreted }
    }

    pub(super) fn key(
        &mut self,
        region: RegionId,
        (site, context): (Option<CallSiteId>, Option<ContextId>),
        caller: &Caller<'_, RowId>,
    ) -> RowId {
        let is_root = matches!(caller, Caller::None);
        let via =
            if self.depth == ChainDepth::Path { self.led.of(self.trace, Led { site, context, is_root }) } else { None };
        let from = match caller {
            _ if self.depth == ChainDepth::Site => {
                let interpreted = context.and_then(|context| self.interpreted(context));
                interpreted.or(site).map_or(From::Nobody, From::Site)
            }
            Caller::None if via.is_some() => From::Nobody,
            Caller::None => site.map_or(From::Nobody, |site| From::Site(self.untraced(site))),
            Caller::Lost(_) => From::Lost,
            Caller::Known(enclosing) => match enclosing.last().map(|caller| caller.mark) {
                Some(MORE) => return MORE,
                Some(path) if self.depth == ChainDepth::Path => From::Path(path),
                Some(row) => From::Region(self.links[row as usize].region),
                None => From::Lost,
            },
        };
        let link = ChainLink { from, via, region };
        if let Some(&key) = self.keys.get(&link) {
            return key;
        }
        if self.links.len() == MOST_ROWS {
            return MORE;
        }
        let key = self.links.len() as RowId;
        self.links.push(link);
        self.keys.insert(link, key);
        key
    }

    /// The function that made the calls of a row, where it is traced and the row tells it from others.
    pub(super) fn caller(&self, key: RowId) -> Option<RegionId> {
        match self.links.get(key as usize)?.from {
            From::Region(region) => Some(region),
            From::Path(row) => Some(self.links[row as usize].region),
            From::Nobody | From::Site(_) | From::Lost => None,
        }
    }

    pub(super) fn columns(&self) -> &'static [Column] {
        const CALLER: [Column; 4] = [FUNCTION[0], FUNCTION[2], FUNCTION[3], Column::name("caller", "called by")];
        const PATH: [Column; 4] = [CALLER[0], CALLER[1], CALLER[2], Column::name("callers", "called by")];
        const SITE: [Column; 4] = [CALLER[0], CALLER[1], CALLER[2], Column::name("call_site", "called at")];
        match self.depth {
            ChainDepth::Caller => &CALLER,
            ChainDepth::Path => &PATH,
            ChainDepth::Site => &SITE,
        }
    }

    /// The values of [`columns`](Chains::columns); callers from the nearest to the root.
    pub(super) fn labels(&self, key: RowId) -> Vec<Datum> {
        let Some(&ChainLink { from, via, region }) = self.links.get(key as usize) else {
            return vec![Datum::Absent, Datum::Absent, Datum::Name("[more]".to_owned()), Datum::Absent];
        };
        let mut callers: Vec<String> = Vec::new();
        let mut next = from;
        callers.extend(via.into_iter().flat_map(|via| self.names_of(via)));
        loop {
            next = match next {
                From::Nobody => break,
                From::Site(id) => {
                    callers.extend(self.trace.call_site(id).map(|site| self.site_name(site)));
                    break;
                }
                From::Lost => {
                    callers.push("[lost caller]".to_owned());
                    break;
                }
                From::Region(region) => {
                    callers.push(self.name_alone(region));
                    break;
                }
                From::Path(row) => {
                    let link = self.links[row as usize];
                    callers.push(self.name_alone(link.region));
                    callers.extend(link.via.into_iter().flat_map(|via| self.names_of(via)));
                    link.from
                }
            };
        }
        let [region, _, library, name] = function(self.trace, region);
        let callers = if callers.is_empty() { Datum::Absent } else { Datum::Name(callers.join(" < ")) };
        vec![region, library, name, callers]
    }

    /// The untraced functions of a chain, the nearest first.
    fn names_of(&self, via: ChainId) -> impl Iterator<Item = String> {
        self.led.chain(via).iter().rev().map(|&id| self.led.name(id).to_owned())
    }

    /// The line of a script that led to calls. Who writes in such a language knows that line, not the code that runs it.
    fn interpreted(&mut self, context: ContextId) -> Option<CallSiteId> {
        let Chains { trace, interpreted, .. } = self;
        let is_interpreted = |site: &CallSiteId| trace.call_site(*site).is_some_and(CallSite::is_interpreted);
        let find = || trace.context(context)?.sites.iter().copied().find(is_interpreted);
        *interpreted.entry(context).or_insert_with(find)
    }

    /// The first call site in the same untraced function.
    fn untraced(&mut self, id: CallSiteId) -> CallSiteId {
        let Some(site) = self.trace.call_site(id) else { return id };
        *self.untraced.entry((site.file.as_deref(), site.innermost())).or_insert(id)
    }

    fn site_name(&self, site: &CallSite) -> String {
        let file = site.file.as_deref().map_or("no file", |path| path.rsplit('/').next().unwrap_or(path));
        match site.innermost() {
            _ if self.depth == ChainDepth::Site => site.to_string(),
            Some(function) => format!("{function} ({file})"),
            None => format!("({file})"),
        }
    }

    /// Where its library is not told beside it.
    fn name_alone(&self, region: RegionId) -> String {
        self.trace.function(region).map_or_else(|| "[unknown]".to_owned(), Cow::into_owned)
    }
}
