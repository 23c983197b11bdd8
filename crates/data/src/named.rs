//! Enums whose variants have names.

/// Makes an enum of lines `Variant = "name"`, with its names beside its variants and nowhere else: `NAMES`, `ALL`, `name()` and `named()`. With serde, the names are also those in files
/// and messages; `enum X without serde` is for enums that are in none.
///
/// ```
/// use serde::{Deserialize, Serialize};
///
/// fedeq_data::named! {
///     /// A size.
///     #[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
///     pub enum Size {
///         /// A small one.
///         Small = "small",
///         /// A large one.
///         Large = "large",
///     }
/// }
///
/// assert_eq!(Size::NAMES, ["small", "large"]);
/// assert_eq!(Size::ALL, [Size::Small, Size::Large]);
/// assert_eq!((Size::Large.name(), Size::named("small")), ("large", Some(Size::Small)));
/// assert_eq!(serde_json::to_string(&Size::Large).unwrap(), r#""large""#);
/// ```
#[macro_export]
macro_rules! named {
    ($(#[$attribute:meta])* $seen:vis enum $type:ident { $($(#[$inner:meta])* $variant:ident = $name:literal,)+ }) => {
        $(#[$attribute])*
        $seen enum $type {
            $($(#[$inner])* #[serde(rename = $name)] $variant,)+
        }
        $crate::named!(@names $type: $($variant = $name,)+);
    };
    ($(#[$attribute:meta])* $seen:vis enum $type:ident without serde { $($(#[$inner:meta])* $variant:ident = $name:literal,)+ }) => {
        $(#[$attribute])*
        $seen enum $type {
            $($(#[$inner])* $variant,)+
        }
        $crate::named!(@names $type: $($variant = $name,)+);
    };
    (@names $type:ident: $($variant:ident = $name:literal,)+) => {
        impl $type {
            /// Every name, in the order of the variants.
            pub const NAMES: [&str; [$($name),+].len()] = [$($name),+];

            /// All of them, in their order.
            pub const ALL: [Self; Self::NAMES.len()] = [$(Self::$variant),+];

            /// Its name.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }

            /// The one of that name.
            pub fn named(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$variant),)+
                    _ => None,
                }
            }
        }
    };
}
