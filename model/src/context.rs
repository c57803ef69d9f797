//! Contexts: the untraced functions that led to a call.

use serde::{Deserialize, Serialize};

use crate::{CallSiteId, ContextId, words};

/// The return addresses between a call and the traced call around it, or, where there is none, the outermost function
/// of the thread. The call's own return address, its [call site](crate::Call::call_site), is not among them.
///
/// Of a call that another traced one made, the last address lies in the function of that one. So a call that was made
/// directly has the empty context.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Context {
    /// Its id.
    pub id: ContextId,
    /// The places, the innermost first.
    pub sites: Vec<CallSiteId>,
    /// Whether there are more, and why they are not known.
    pub ending: ContextEnding,
}

impl Context {
    /// That of calls whose caller is traced, in every recording with contexts.
    pub const EMPTY: ContextId = ContextId(1);
}

words! {
    /// Why a context has no more places.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    ContextEnding {
        /// There are no more.
        #[default]
        Complete = "complete",
        /// It is as long as was asked for.
        Cut = "cut",
        /// How the next frame is left was not known yet when the call entered.
        NotYetKnown = "not yet known",
        /// No unwind table describes the next frame.
        NotDescribed = "not described",
        /// The stack could not be read.
        NotReadable = "not readable",
        /// The stack is not what the unwind tables say.
        Contradicted = "contradicted",
        /// A signal handler was called: what it interrupted is not followed.
        Signal = "signal",
    }
}
