//! Functions that must be left alone, whatever their code looks like.

use rtrace_symbolizer::Symbol;

/// Reasons with the names they hold for.
const GROUPS: [(&str, &[&str]); 2] = [
    ("unwinders know this code by its bytes", &["__restore_rt", "__kernel_rt_sigreturn", "__kernel_sigreturn"]),
    (NOT_CALLED, &["_start", "__start_context"]),
];

/// Why a place is not probed at which threads begin.
pub const NOT_CALLED: &str = "nothing calls it: it begins without a return address";

/// Its first bytes are not the file's: instructions may begin elsewhere, and a jump may lead past a probe.
pub const ALTERED: &str = "its code was changed or moved in the process";

/// Why a function of these names is not probed, if there is a reason.
pub fn reason(symbols: &[Symbol]) -> Option<&'static str> {
    let holds = |names: &[&str]| symbols.iter().any(|symbol| names.contains(&symbol.name.as_str()));
    GROUPS.iter().find(|(_, names)| holds(names)).map(|&(reason, _)| reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason_of(names: &[&str]) -> Option<&'static str> {
        let symbols: Vec<Symbol> =
            names.iter().map(|name| Symbol { name: (*name).to_owned(), version: None }).collect();
        reason(&symbols)
    }

    #[test]
    fn any_alias_decides() {
        assert_eq!(reason_of(&["harmless", "_start"]), Some(NOT_CALLED));
        assert!(reason_of(&["__restore_rt"]).is_some());
        for name in ["setjmp", "vfork", "_Unwind_Resume", "exit", "_started"] {
            assert_eq!(reason_of(&[name]), None, "{name}");
        }
    }
}
