//! Functions that must be left alone, whatever their code looks like.

use rtrace_symbolizer::Symbol;

use crate::reason::Reason;

/// Reasons with the names they hold for.
const GROUPS: [(Reason, &[&str]); 2] = [
    (Reason::KnownByBytes, &["__restore_rt", "__kernel_rt_sigreturn", "__kernel_sigreturn"]),
    (Reason::NotCalled, &["_start", "_dlstart", "__start_context"]),
];

/// Why a function of these names is not probed, if there is a reason.
pub fn reason(symbols: &[Symbol]) -> Option<Reason> {
    let holds = |names: &[&str]| symbols.iter().any(|symbol| names.contains(&symbol.name.as_str()));
    GROUPS.iter().find(|(_, names)| holds(names)).map(|(reason, _)| reason.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason_of(names: &[&str]) -> Option<Reason> {
        let symbols: Vec<Symbol> =
            names.iter().map(|name| Symbol { name: (*name).to_owned(), version: None, is_default: true }).collect();
        reason(&symbols)
    }

    #[test]
    fn any_alias_decides() {
        assert_eq!(reason_of(&["harmless", "_start"]), Some(Reason::NotCalled));
        assert!(reason_of(&["__restore_rt"]).is_some());
        for name in ["setjmp", "vfork", "_Unwind_Resume", "exit", "_started"] {
            assert_eq!(reason_of(&[name]), None, "{name}");
        }
    }
}
