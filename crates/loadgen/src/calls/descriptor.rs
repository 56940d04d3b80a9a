//! The description of a method: from `.proto` files, or from the service itself.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use prost::Message as _;
use prost_reflect::prost_types::{FileDescriptorProto, FileDescriptorSet};
use prost_reflect::{DescriptorPool, MethodDescriptor};
use protox::Compiler;
use protox::file::{
    ChainFileResolver, File, FileResolver, GoogleFileResolver, IncludeFileResolver,
};
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_reflection::pb::v1::{ErrorResponse, ServerReflectionRequest, ServerReflectionResponse};

use crate::grpc::{Connection, Refusal};

/// Paths of reflection: the version of today, and the one before with the same messages.
const REFLECTION: [&str; 2] = [
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
];

/// Files that a service may need to describe a method.
const MOST_FILES: usize = 1_000;

/// Files on the way from one to one that it imports.
const DEEPEST: usize = 100;

/// gRPC statuses: what was asked for is not there, and the method is not.
const NOT_FOUND: i32 = 5;
const UNIMPLEMENTED: i32 = 12;

/// A method whose description cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum DescriptorError {
    #[error("`{call}` is not a method; write it like `package.Service/Method`")]
    Form { call: String },
    #[error("{said}")]
    Proto { said: String },
    #[error("the service has no reflection; give its `.proto` files with `--proto FILE`")]
    NoReflection,
    #[error(
        "the service does not describe itself: {said}; see that it speaks gRPC there, with `--tls` where it is encrypted"
    )]
    Refused { said: String },
    #[error(
        "the service ended the TLS connection; it may want a certificate of its clients (`--client-certificate`, \
         `--client-key`)"
    )]
    Tls,
    #[error("there is no service `{service}` (there are {known})")]
    NoService { service: String, known: String },
    #[error("`{service}` has no method `{method}` (it has {known})")]
    NoMethod { service: String, method: String, known: String },
}

impl DescriptorError {
    /// Whether what was asked for is wrong, and not the service.
    pub fn is_of_usage(&self) -> bool {
        !matches!(self, Self::NoReflection | Self::Refused { .. } | Self::Tls)
    }
}

fn parts(call: &str) -> Result<(&str, &str), DescriptorError> {
    let parts = call.trim_start_matches('/').split_once('/');
    parts
        .filter(|(service, method)| {
            !service.is_empty() && !method.is_empty() && !method.contains('/')
        })
        .ok_or_else(|| DescriptorError::Form { call: call.to_owned() })
}

/// As files describe it. Imports are looked for in folders, then beside the files.
pub(super) fn compiled(
    call: &str,
    files: &[PathBuf],
    folders: &[PathBuf],
) -> Result<MethodDescriptor, DescriptorError> {
    let refused = |said: String| DescriptorError::Proto { said };
    for file in files {
        std::fs::metadata(file)
            .map_err(|error| refused(format!("cannot read {}: {error}", file.display())))?;
    }
    let mut folders = folders.to_vec();
    folders.extend(files.iter().filter_map(|file| file.parent()).map(|folder| {
        if folder.as_os_str().is_empty() { PathBuf::from(".") } else { folder.to_owned() }
    }));
    let set = described_by(files, folders).map_err(refused)?;
    let pool = DescriptorPool::from_file_descriptor_set(set)
        .map_err(|error| refused(error.to_string()))?;
    find(&pool, call)
}

/// Files with all that they import.
fn described_by(files: &[PathBuf], folders: Vec<PathBuf>) -> Result<FileDescriptorSet, String> {
    let said = |error: protox::Error| format!("{error:?}").trim().to_owned();
    let mut known = ChainFileResolver::new();
    folders.into_iter().for_each(|folder| known.add(IncludeFileResolver::new(folder)));
    known.add(GoogleFileResolver::new());
    let mut compiler =
        Compiler::with_file_resolver(Shallow { files: known, imports: RefCell::default() });
    compiler.include_imports(true).open_files(files).map_err(said)?;
    Ok(compiler.file_descriptor_set())
}

/// Opens files that import each other to a bounded depth: the compiler calls itself for each.
struct Shallow {
    files: ChainFileResolver,
    /// What the file imports that was opened last, and those on the way to it.
    imports: RefCell<Vec<Vec<String>>>,
}

impl FileResolver for Shallow {
    fn resolve_path(&self, path: &Path) -> Option<String> {
        self.files.resolve_path(path)
    }

    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        let file = self.files.open_file(name)?;
        let mut imports = self.imports.borrow_mut();
        // Each file is opened once, behind the one that imports it and the others of that one.
        while imports.last().is_some_and(|last| !last.iter().any(|import| import == name)) {
            imports.pop();
        }
        if imports.len() >= DEEPEST {
            let said = format!("`{name}` is imported more than {DEEPEST} files deep");
            return Err(protox::Error::new(said));
        }
        imports.push(file.file_descriptor_proto().dependency.clone());
        Ok(file)
    }
}

/// Services that it says it has.
pub(super) async fn services(connection: &Connection) -> Result<Vec<String>, DescriptorError> {
    Reflection { connection, path: REFLECTION[0] }.services().await
}

/// As the service itself describes it.
pub(super) async fn reflected(
    call: &str,
    connection: &Connection,
) -> Result<MethodDescriptor, DescriptorError> {
    let (service, _) = parts(call)?;
    let mut reflection = Reflection { connection, path: REFLECTION[0] };
    let wanted = MessageRequest::FileContainingSymbol(service.to_owned());
    let Some(first) = reflection.files(wanted).await? else {
        let known = reflection.services().await?;
        return Err(no_service(service, known));
    };
    let (mut files, mut seen, mut missing) = (Vec::new(), BTreeSet::new(), Vec::new());
    let mut next = first;
    loop {
        for file in next {
            if seen.insert(file.name().to_owned()) {
                missing.extend(file.dependency.clone());
                files.push(file);
            }
        }
        missing.retain(|name| !seen.contains(name));
        let Some(name) = missing.pop() else { break };
        if seen.len() >= MOST_FILES {
            let said = format!("it needs more than {MOST_FILES} files");
            return Err(DescriptorError::Refused { said });
        }
        let found = reflection.files(MessageRequest::FileByFilename(name.clone())).await?;
        next = found
            .filter(|files| files.iter().any(|file| *file.name() == *name))
            .ok_or_else(|| DescriptorError::Refused { said: format!("it has no file `{name}`") })?;
    }
    let pool = described(files)?;
    if pool.get_service_by_name(service).is_none() {
        let said = format!("its files do not have `{service}`");
        return Err(DescriptorError::Refused { said });
    }
    find(&pool, call)
}

/// Files of a service, put together.
pub(crate) fn described(
    files: Vec<FileDescriptorProto>,
) -> Result<DescriptorPool, DescriptorError> {
    // The library panics at others, such as `editions` or an empty one.
    let known = [None, Some("proto2"), Some("proto3")];
    if let Some(file) = files.iter().find(|file| !known.contains(&file.syntax.as_deref())) {
        let (name, syntax) = (file.name(), file.syntax());
        let said =
            format!("`{name}` has the syntax `{syntax}`, and only proto2 and proto3 are read");
        return Err(DescriptorError::Refused { said });
    }
    let mut pool = DescriptorPool::new();
    pool.add_file_descriptor_protos(files)
        .map_err(|error| DescriptorError::Refused { said: error.to_string() })?;
    Ok(pool)
}

pub(crate) fn find(pool: &DescriptorPool, call: &str) -> Result<MethodDescriptor, DescriptorError> {
    let (service, method) = parts(call)?;
    let found = pool.get_service_by_name(service).ok_or_else(|| {
        no_service(service, pool.services().map(|one| one.full_name().to_owned()).collect())
    })?;
    let methods = || found.methods();
    methods().find(|one| one.name() == method).ok_or_else(|| {
        let known: Vec<String> = methods().map(|one| one.name().to_owned()).collect();
        DescriptorError::NoMethod {
            service: service.to_owned(),
            method: method.to_owned(),
            known: known.join(", "),
        }
    })
}

fn no_service(service: &str, known: Vec<String>) -> DescriptorError {
    DescriptorError::NoService { service: service.to_owned(), known: known.join(", ") }
}

/// Asks a service about itself, one question a call.
struct Reflection<'a> {
    connection: &'a Connection,
    path: &'static str,
}

impl Reflection<'_> {
    async fn ask(&mut self, question: MessageRequest) -> Result<MessageResponse, DescriptorError> {
        let request =
            ServerReflectionRequest { host: String::new(), message_request: Some(question) };
        let mut answer = self.connection.ask(self.path, &request).await;
        if let Err(Refusal::Status { code: UNIMPLEMENTED, .. }) = answer
            && self.path == REFLECTION[0]
        {
            self.path = REFLECTION[1];
            answer = self.connection.ask(self.path, &request).await;
        }
        match answer {
            Ok(ServerReflectionResponse { message_response: Some(response), .. }) => Ok(response),
            Ok(_) => Err(DescriptorError::Refused { said: "an empty answer".to_owned() }),
            Err(Refusal::Status { code: NOT_FOUND, .. }) => {
                Ok(MessageResponse::ErrorResponse(ErrorResponse::default()))
            }
            Err(Refusal::Status { code: UNIMPLEMENTED, .. }) => Err(DescriptorError::NoReflection),
            Err(refusal) if self.connection.ended_encryption(&refusal) => Err(DescriptorError::Tls),
            Err(refusal) => Err(DescriptorError::Refused { said: refusal.to_string() }),
        }
    }

    /// Files, or that what was asked for is not there.
    async fn files(
        &mut self,
        question: MessageRequest,
    ) -> Result<Option<Vec<FileDescriptorProto>>, DescriptorError> {
        match self.ask(question).await? {
            MessageResponse::FileDescriptorResponse(files) => {
                let files = files.file_descriptor_proto.iter();
                let files = files.map(|file| FileDescriptorProto::decode(file.as_slice()));
                files
                    .collect::<Result<_, _>>()
                    .map(Some)
                    .map_err(|error| DescriptorError::Refused { said: error.to_string() })
            }
            MessageResponse::ErrorResponse(_) => Ok(None),
            _ => Err(DescriptorError::Refused { said: "an answer to another question".to_owned() }),
        }
    }

    async fn services(&mut self) -> Result<Vec<String>, DescriptorError> {
        match self.ask(MessageRequest::ListServices(String::new())).await? {
            MessageResponse::ListServicesResponse(list) => {
                Ok(list.service.into_iter().map(|service| service.name).collect())
            }
            _ => Ok(Vec::new()),
        }
    }
}
