//! Enumerations whose variants go by a word, in columns, reports and tables, or by a phrase.

/// Declares such an enumeration, each variant with its word, which is what it is displayed as.
#[macro_export]
macro_rules! words {
    ($(#[$about:meta])* $type:ident { $($(#[$doc:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$about])*
        pub enum $type { $($(#[$doc])* $variant,)+ }

        #[allow(dead_code, reason = "who displays a word need not look for it")]
        impl $type {
            /// All there are, in the order of reports.
            pub const ALL: [$type; [$($word),+].len()] = [$($type::$variant,)+];

            /// The word.
            pub const fn name(self) -> &'static str {
                match self { $($type::$variant => $word,)+ }
            }

            /// The one that goes by this word.
            pub fn from_name(name: &str) -> Option<$type> {
                $type::ALL.into_iter().find(|known| known.name() == name)
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}
