//! `overview/`: when calls were, and how long they took.

use super::cell::row;
use crate::overview::{ActivityRow, DurationsRow, SiteRow};

row!(ActivityRow, "activity.parquet", {
    "location": location,
    "start_ns": start,
    "length_ns": length,
    "calls": calls,
    "busy_ns": busy,
});

row!(DurationsRow, "durations.parquet", {
    "region": region,
    "start_ns": start,
    "length_ns": length,
    "from_ns": from,
    "calls": calls,
});

row!(SiteRow, "call_sites.parquet", {
    "location": location,
    "path": path,
    "call_site": site,
    "calls": calls,
    "inclusive_ns": inclusive,
    "exclusive_ns": exclusive,
});
