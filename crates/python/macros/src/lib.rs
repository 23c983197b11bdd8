//! [`macro@sheltered`]: no panic goes through to Python.
use proc_macro::TokenStream;
use quote::quote;
use syn::{Block, ImplItem, Item, ReturnType, Signature, Type, parse_macro_input, parse_quote};

/// Shelters a function, or all functions of an `impl`: a panic becomes an exception, as `crate::error::sheltered` makes it.
///
/// It stands above `#[pyfunction]` and `#[pymethods]`. What gives no `PyResult` gives one afterwards.
#[proc_macro_attribute]
pub fn sheltered(_: TokenStream, item: TokenStream) -> TokenStream {
    let mut item = parse_macro_input!(item as Item);
    match &mut item {
        Item::Fn(function) => shelter(&mut function.sig, &mut function.block),
        Item::Impl(block) => block.items.iter_mut().for_each(|item| {
            if let ImplItem::Fn(function) = item {
                shelter(&mut function.sig, &mut function.block);
            }
        }),
        other => return syn::Error::new_spanned(other, "only functions can be sheltered").into_compile_error().into(),
    }
    quote!(#item).into()
}

fn shelter(signature: &mut Signature, block: &mut Block) {
    let given: Type = match &signature.output {
        ReturnType::Default => parse_quote!(()),
        ReturnType::Type(_, given) => (**given).clone(),
    };
    if is_result(&given) {
        *block = parse_quote!({ crate::error::sheltered(move || -> #given #block)? });
    } else {
        *block = parse_quote!({ crate::error::sheltered(move || -> #given #block) });
        signature.output = parse_quote!(-> ::pyo3::PyResult<#given>);
    }
}

/// Whether it is a `PyResult`.
fn is_result(given: &Type) -> bool {
    matches!(given, Type::Path(path) if path.path.segments.last().is_some_and(|last| last.ident == "PyResult"))
}
