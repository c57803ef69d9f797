//! What definitions go by within a trace.

use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u32);

        impl $name {
            /// The id as an index into a table of definitions.
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
}

id!(
    /// Names a [`Library`](crate::Library) within one trace; counts up from 0.
    LibraryId
);
id!(
    /// Names a [`Region`](crate::Region) within one trace; counts up from 0.
    RegionId
);
id!(
    /// Names a [`Location`](crate::Location) within one trace; counts up from 1.
    LocationId
);
id!(
    /// Names a [`Metric`](crate::Metric) within one trace; counts up from 0.
    MetricId
);
id!(
    /// Names a [`CallSite`](crate::CallSite) within one trace; counts up from 0.
    CallSiteId
);
id!(
    /// Names a [`Context`](crate::Context) within one trace.
    ContextId
);
id!(
    /// Names a call path among those of one location; never 0.
    PathId
);
