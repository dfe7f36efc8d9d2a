//! Protobuf: messages of a type that a `.proto` file or a compiled descriptor defines.

mod sink;
mod source;

use std::path::Path;

use prost_reflect::{DescriptorPool, FieldDescriptor, Kind, MessageDescriptor};
use tidemill_connect::{OptionError, OptionSpec, Options};
use tidemill_types::did_you_mean;

pub(crate) use self::sink::ProtobufSinkType;
pub(crate) use self::source::ProtobufSourceType;

const OPTIONS: &[OptionSpec] = &[
    OptionSpec::text(
        "class",
        "Type of the messages, with its package: `stock.Trade`; not needed if the definition has only one.",
    ),
    OptionSpec::text(
        "descriptor",
        "Path of a `.proto` file, or of the output of `protoc --include_imports --descriptor_set_out=…`.",
    ),
    OptionSpec::text("schema.def", "Text of a `.proto` file in place of `descriptor`."),
];

/// Name under which a definition in the app is compiled.
const INLINE_FILE: &str = "schema.proto";

/// Returns the type of the messages.
///
/// Errors: the definition is missing or wrong, or does not have the type.
fn message_type(options: &Options) -> Result<MessageDescriptor, OptionError> {
    let error = |name: &str, message: String| OptionError::option(name, message).of_mapper();
    let pool = match (options.get("descriptor"), options.get("schema.def")) {
        (Some(path), None) => read_descriptor(Path::new(path)).map_err(|e| error("descriptor", e))?,
        (None, Some(text)) => compile_text(text).map_err(|e| error("schema.def", e))?,
        (Some(_), Some(_)) => {
            return Err(error("schema.def", "write this option or `descriptor`, not both".to_owned()));
        }
        (None, None) => {
            let error = OptionError::connector("the type of the messages is not defined").of_mapper();
            return Err(error.expected(["descriptor='stock.proto'", "schema.def='syntax = \"proto3\"; …'"]));
        }
    };
    let own = |message: &MessageDescriptor| !message.full_name().starts_with("google.protobuf.");
    let all: Vec<MessageDescriptor> =
        pool.all_messages().filter(|message| own(message) && !message.is_map_entry()).collect();
    let names = || all.iter().map(|message| message.full_name());
    match (options.get("class"), all.as_slice()) {
        (None, [only]) => Ok(only.clone()),
        (None, _) => {
            let message = format!("there are {} types of messages; which one is it?", all.len());
            Err(error("class", message).expected(names().map(|name| format!("class='{name}'"))))
        }
        (Some(class), _) => find_class(class, &all).ok_or_else(|| {
            error("class", format!("there is no message `{class}`{}", did_you_mean(class, names())))
        }),
    }
}

/// Finds a type by its name in Protobuf, or by that of the class that `protoc` makes of it for Java, if only one fits.
fn find_class(class: &str, all: &[MessageDescriptor]) -> Option<MessageDescriptor> {
    let own = class.trim_start_matches('.');
    if let Some(found) = all.iter().find(|message| message.full_name() == own) {
        return Some(found.clone());
    }
    let is_java = |message: &&MessageDescriptor| {
        let file = message.parent_file();
        let package = file.file_descriptor_proto().options.as_ref().and_then(|o| o.java_package.clone());
        let inside = class.strip_prefix(package.as_deref().unwrap_or(file.package_name()));
        inside.is_some_and(|inside| {
            inside.strip_suffix(message.name()).is_some_and(|before| before.ends_with(['.', '$']))
        })
    };
    let mut found = all.iter().filter(is_java);
    found.next().filter(|_| found.next().is_none()).cloned()
}

fn read_descriptor(path: &Path) -> Result<DescriptorPool, String> {
    let shown = path.display();
    if path.extension().is_some_and(|extension| extension == "proto") {
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let name = path.file_name().ok_or_else(|| format!("{shown} is no file"))?;
        let set = protox::compile([name], [dir]).map_err(|e| format!("{shown} cannot be compiled: {e}"))?;
        return DescriptorPool::from_file_descriptor_set(set).map_err(|e| format!("{shown}: {e}"));
    }
    let bytes = std::fs::read(path).map_err(|e| format!("{shown} cannot be read: {e}"))?;
    DescriptorPool::decode(bytes.as_slice())
        .map_err(|e| format!("{shown} is neither a `.proto` file nor a compiled descriptor: {e}"))
}

fn compile_text(text: &str) -> Result<DescriptorPool, String> {
    use protox::file::{ChainFileResolver, File, FileResolver, GoogleFileResolver};

    struct Inline(File);

    impl FileResolver for Inline {
        fn open_file(&self, name: &str) -> Result<File, protox::Error> {
            match name == INLINE_FILE {
                true => Ok(self.0.clone()),
                false => Err(protox::Error::file_not_found(name)),
            }
        }
    }

    let file = File::from_source(INLINE_FILE, text).map_err(|e| format!("it cannot be compiled: {e}"))?;
    let mut resolver = ChainFileResolver::new();
    resolver.add(Inline(file));
    resolver.add(GoogleFileResolver::new());
    let mut compiler = protox::Compiler::with_file_resolver(resolver);
    compiler
        .include_imports(true)
        .open_file(INLINE_FILE)
        .map_err(|e| format!("it cannot be compiled: {e}"))?;
    Ok(compiler.descriptor_pool())
}

/// Finds a field by its name, or by the name that it has in JSON and Java.
///
/// Errors: the message does not have the field.
fn find_field(message: &MessageDescriptor, name: &str) -> Result<FieldDescriptor, String> {
    message.get_field_by_name(name).or_else(|| message.get_field_by_json_name(name)).ok_or_else(|| {
        let known: Vec<String> = message.fields().map(|field| field.name().to_owned()).collect();
        let hint = did_you_mean(name, known.iter().map(String::as_str));
        format!("the message `{}` has no field `{name}`{hint}", message.full_name())
    })
}

/// Returns true if a field is converted by the rules of JSON: it has several values, or one that is not a
/// scalar.
fn is_compound(field: &FieldDescriptor) -> bool {
    field.is_list() || field.is_map() || matches!(field.kind(), Kind::Message(_))
}
