//! The untraced functions that led to calls, as reports and exports show them: by name, from `main` on.

use foldhash::HashMap;
use rtrace_model::{CallSite, CallSiteId, ContextEnding, ContextId};

use crate::TraceSet;

/// Names a function that is not traced, or why some are not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UntracedId(u32);

/// Names a sequence of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChainId(u32);

/// Where a call comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Led {
    /// Its call site.
    pub site: Option<CallSiteId>,
    /// Its context.
    pub context: Option<ContextId>,
    /// No traced call made it.
    pub is_root: bool,
}

/// The untraced functions of one trace.
#[derive(Default)]
pub struct Untraced {
    names: Vec<String>,
    ids: HashMap<String, UntracedId>,
    /// The outermost first.
    chains: Vec<Vec<UntracedId>>,
    chain_ids: HashMap<Vec<UntracedId>, ChainId>,
    known: HashMap<Led, Option<ChainId>>,
}

impl Untraced {
    /// The functions that led from the traced call around a call to the call; `None` where there are none, or they were
    /// not recorded.
    pub fn of(&mut self, trace: &TraceSet, led: Led) -> Option<ChainId> {
        led.context?;
        if let Some(&known) = self.known.get(&led) {
            return known;
        }
        let chain = self.find(trace, led).filter(|chain| !chain.is_empty()).map(|chain| self.chain_id(chain));
        self.known.insert(led, chain);
        chain
    }

    /// The functions of a chain, the outermost first.
    pub fn chain(&self, id: ChainId) -> &[UntracedId] {
        &self.chains[id.0 as usize]
    }

    /// The name of a function with its file, as `main (prog)` and `fit (fit.py:42)`, or why more are not known, in brackets; not escaped.
    pub fn name(&self, id: UntracedId) -> &str {
        &self.names[id.0 as usize]
    }

    fn find(&mut self, trace: &TraceSet, led: Led) -> Option<Vec<UntracedId>> {
        let context = trace.context(led.context?)?;
        let sites = || led.site.iter().chain(&context.sites).rev();
        let is_complete = context.ending == ContextEnding::Complete;
        let known: Vec<&CallSite> = sites().filter_map(|&site| trace.call_site(site)).collect();
        let skipped = match (led.is_root, is_complete) {
            // What calls `main` is the same in all programs.
            (true, true) => {
                let is_main = |site: &&CallSite| site.function.as_deref() == Some("main") && !site.is_interpreted();
                known.iter().position(is_main).unwrap_or(0)
            }
            // The traced function itself.
            (false, true) => 1,
            (_, false) => 0,
        };
        let mut chain = Vec::new();
        if !is_complete {
            chain.push(self.id(format!("[{}]", context.ending.name())));
        }
        for site in known.into_iter().skip(skipped) {
            let last = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
            let file = match &site.source {
                Some(source) if site.is_interpreted() => format!("{}:{}", last(&source.file), source.line),
                _ => site.file.as_deref().map_or_else(|| "no file".to_owned(), last),
            };
            chain.push(match &site.function {
                Some(function) => self.id(format!("{function} ({file})")),
                None => self.id(format!("({file})")),
            });
            chain.extend(site.inlined.iter().map(|inlined| self.id(format!("{} ({file})", inlined.function))));
        }
        Some(chain)
    }

    fn id(&mut self, name: String) -> UntracedId {
        *self.ids.entry(name).or_insert_with_key(|name| {
            self.names.push(name.clone());
            UntracedId(self.names.len() as u32 - 1)
        })
    }

    fn chain_id(&mut self, chain: Vec<UntracedId>) -> ChainId {
        *self.chain_ids.entry(chain).or_insert_with_key(|chain| {
            self.chains.push(chain.clone());
            ChainId(self.chains.len() as u32 - 1)
        })
    }
}
