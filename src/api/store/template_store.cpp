#include "api/store/template_store.h"

#include <array>

#include "api/store/migrations.h"

namespace drupe::api {
namespace {

constexpr std::array kStatuses{"pending", "building", "ready", "failed"};

#define DRUPE_TEMPLATE_COLUMNS \
  "id, owner, name, base, dockerfile, status, image_id, ext4_size, created_ns, built_ns, deleted, error"

TemplateRow read_row(const Statement& from) {
  TemplateRow row;
  row.id = from.text(0);
  row.owner = from.text(1);
  row.name = from.text(2);
  row.base = from.text(3);
  row.dockerfile = from.text(4);
  const std::string status = from.text(5);
  for (std::size_t i = 0; i < kStatuses.size(); ++i)
    if (status == kStatuses.at(i)) row.status = static_cast<TemplateStatus>(i);
  row.image_id = from.text(6);
  row.ext4_size = from.integer(7);
  row.created_ns = from.integer(8);
  row.built_ns = from.maybe_integer(9);
  row.deleted = from.integer(10) != 0;
  row.error = from.text(11);
  return row;
}

Result<std::vector<TemplateRow>> read_rows(Statement& from) {
  std::vector<TemplateRow> rows;
  while (true) {
    DRUPE_ASSIGN(const bool more, from.step());
    if (!more) return rows;
    rows.push_back(read_row(from));
  }
}

}  // namespace

std::string_view to_string(TemplateStatus status) {
  return kStatuses.at(static_cast<std::size_t>(status));
}

Result<std::unique_ptr<TemplateStore>> TemplateStore::open(const std::string& path) {
  DRUPE_ASSIGN(auto database, Database::open(path));
  DRUPE_TRY(migrate(*database));
  return std::unique_ptr<TemplateStore>(new TemplateStore(std::move(database)));
}

Status TemplateStore::add(const TemplateRow& row) {
  const std::scoped_lock lock(mutex_);
  DRUPE_ASSIGN(Statement add, database_->prepare("INSERT INTO templates (" DRUPE_TEMPLATE_COLUMNS
                                                 ") VALUES (?,?,?,?,?,?,?,?,?,?,?,?)"));
  return add.bind(row.id)
      .bind(row.owner)
      .bind(row.name)
      .bind(row.base)
      .bind(row.dockerfile)
      .bind(to_string(row.status))
      .bind(row.image_id)
      .bind(row.ext4_size)
      .bind(row.created_ns)
      .bind_optional(row.built_ns)
      .bind(std::int64_t{row.deleted})
      .bind(row.error)
      .run();
}

Status TemplateStore::update(const TemplateRow& row) {
  const std::scoped_lock lock(mutex_);
  {
    DRUPE_ASSIGN(Statement change,
                 database_->prepare("UPDATE templates SET status = ?, image_id = ?, ext4_size = ?, "
                                    "built_ns = ?, deleted = ?, error = ? WHERE id = ?"));
    DRUPE_TRY(change.bind(to_string(row.status))
                  .bind(row.image_id)
                  .bind(row.ext4_size)
                  .bind_optional(row.built_ns)
                  .bind(std::int64_t{row.deleted})
                  .bind(row.error)
                  .bind(row.id)
                  .run());
  }
  if (database_->changes() == 0) return fail(ErrorCode::kNotFound, "template not found");
  return {};
}

Status TemplateStore::drop(std::string_view id) {
  const std::scoped_lock lock(mutex_);
  DRUPE_ASSIGN(Statement drop, database_->prepare("DELETE FROM templates WHERE id = ?"));
  return drop.bind(id).run();
}

Result<std::vector<TemplateRow>> TemplateStore::list(std::string_view owner) {
  const std::scoped_lock lock(mutex_);
  DRUPE_ASSIGN(
      Statement list,
      database_->prepare("SELECT " DRUPE_TEMPLATE_COLUMNS
                         " FROM templates WHERE ?1 = '' OR owner = ?1 ORDER BY created_ns DESC, id DESC"));
  list.bind(owner);
  return read_rows(list);
}

Result<std::optional<TemplateRow>> TemplateStore::of_image(std::string_view image_id) {
  const std::scoped_lock lock(mutex_);
  DRUPE_ASSIGN(Statement find, database_->prepare("SELECT " DRUPE_TEMPLATE_COLUMNS
                                                  " FROM templates WHERE image_id = ? LIMIT 1"));
  find.bind(image_id);
  DRUPE_ASSIGN(auto rows, read_rows(find));
  if (rows.empty()) return std::nullopt;
  return std::move(rows.front());
}

}  // namespace drupe::api
