//! Presets by name. What each of them decides is decided where the setting is: of a method in its file.
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Makes [`Preset`] of lines `Variant = "name"`.
macro_rules! presets {
    ($($(#[$attribute:meta])+ $variant:ident = $name:literal,)+) => {
        /// How an experiment fills in what it leaves out.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
        pub enum Preset {
            $($(#[$attribute])+ #[serde(rename = $name)] $variant,)+
        }

        impl Preset {
            /// Every name.
            pub const NAMES: [&str; [$($name),+].len()] = [$($name),+];

            /// The preset of that name.
            pub fn named(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$variant),)+
                    _ => None,
                }
            }
        }
    };
}

presets! {
    /// `paper`, with the theta-step started from the received theta: measured to learn far better where clients take part seldom; and with larger injections into the
    /// DEQ-Transformer, which learns far sooner by them.
    #[default]
    Recommended = "recommended",
    /// Algorithm 1 to the letter.
    Paper = "paper",
    /// What the authors' code does.
    Reference = "reference",
}
