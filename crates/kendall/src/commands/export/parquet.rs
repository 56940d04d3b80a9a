//! Tables as Parquet: a group of rows for each piece, all columns optional, the units in the file's metadata.

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::Arc;

use kendall_store::{Column, Values};
use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::Result;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::{Type, TypePtr};

use crate::export::{VERSION, unit};

pub(super) struct Parquet {
    writer: SerializedFileWriter<File>,
}

impl Parquet {
    pub(super) fn new(file: File, table: &str, columns: &[Column]) -> Result<Self> {
        let fields = columns.iter().map(field).collect::<Result<Vec<_>>>()?;
        let schema = Type::group_type_builder("table").with_fields(fields).build()?;
        let units: BTreeMap<&str, &str> = columns
            .iter()
            .filter_map(|column| Some((column.name.as_str(), unit(&column.name)?)))
            .collect();
        let metadata = [
            ("kendall.export_version", VERSION.to_string()),
            ("kendall.table", table.to_owned()),
            ("kendall.units", serde_json::json!(units).to_string()),
        ];
        let metadata = metadata.map(|(key, value)| KeyValue::new(key.to_owned(), value));
        let properties = WriterProperties::builder()
            .set_created_by(concat!("Kendall ", env!("CARGO_PKG_VERSION")).to_owned())
            .set_compression(Compression::SNAPPY)
            .set_key_value_metadata(Some(metadata.to_vec()))
            .build();
        let writer = SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties))?;
        Ok(Self { writer })
    }

    pub(super) fn write(&mut self, columns: &[Column]) -> Result<()> {
        if columns.first().is_none_or(|column| column.values.is_empty()) {
            return Ok(());
        }
        let mut group = self.writer.next_row_group()?;
        for column in columns {
            let Some(to) = group.next_column()? else { break };
            match &column.values {
                Values::Integer(values) => batch::<Int64Type, _>(to, values, |value| *value)?,
                Values::Real(values) => batch::<DoubleType, _>(to, values, |value| *value)?,
                Values::Text(values) => {
                    batch::<ByteArrayType, _>(to, values, |text| ByteArray::from(text.as_str()))?;
                }
                Values::Bytes(values) => {
                    batch::<ByteArrayType, _>(to, values, |bytes| ByteArray::from(bytes.clone()))?;
                }
            }
        }
        group.close()?;
        Ok(())
    }

    pub(super) fn end(self) -> Result<()> {
        self.writer.close().map(drop)
    }
}

fn field(column: &Column) -> Result<TypePtr> {
    let (physical, logical) = match column.values {
        Values::Integer(_) => (Physical::INT64, None),
        Values::Real(_) => (Physical::DOUBLE, None),
        Values::Text(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        Values::Bytes(_) => (Physical::BYTE_ARRAY, None),
    };
    let field = Type::primitive_type_builder(&column.name, physical)
        .with_repetition(Repetition::OPTIONAL)
        .with_logical_type(logical);
    Ok(Arc::new(field.build()?))
}

/// Writes the values that there are, and of each row whether it has one.
fn batch<D: DataType, T>(
    mut to: SerializedColumnWriter<'_>,
    values: &[Option<T>],
    value: impl Fn(&T) -> D::T,
) -> Result<()> {
    let there: Vec<D::T> = values.iter().flatten().map(value).collect();
    let levels: Vec<i16> = values.iter().map(|value| i16::from(value.is_some())).collect();
    to.typed::<D>().write_batch(&there, Some(&levels), None)?;
    to.close()
}
