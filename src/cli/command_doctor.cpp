// drupe doctor, drupe version.
#include "cli/commands.h"
#include "cli/json_writer.h"
#include "cli/values.h"
#include "engine/doctor.h"
#include "protocol/frame.h"

namespace drupe::cli {
namespace {

std::string text_of(const DoctorReport& report) {
  std::string out;
  for (const DoctorItem& item : report.items) {
    std::string_view mark = "  ok       ";
    if (item.level == DoctorLevel::kNote) mark = "  note     ";
    if (item.level == DoctorLevel::kWarning) mark = "  warning  ";
    if (item.level == DoctorLevel::kProblem) mark = "  PROBLEM  ";
    out += std::string(mark) + printable(item.topic) + ": " + printable(item.text) + "\n";
    if (!item.mend.empty()) out += "           to mend it: " + printable(item.mend) + "\n";
  }
  out += report.can_run ? "\nSandboxes can run on this machine" : "\nNo sandbox can run on this machine";
  if (report.can_run)
    out += ": " + printable(report.hypervisor) + " (" + printable(report.accelerator) + "), isolation " +
           printable(report.isolation) + ", host confinement " + printable(report.confinement);
  return out + ".\n";
}

std::string json_of(const DoctorReport& report) {
  JsonWriter json;
  json.begin_object()
      .field("can_run", report.can_run)
      .field("hypervisor", std::string_view(report.hypervisor))
      .field("accelerator", std::string_view(report.accelerator))
      .field("isolation", std::string_view(report.isolation))
      .field("host_confinement", std::string_view(report.confinement))
      .field("host_confinement_missing", report.confinement_missing);
  json.key("items").begin_array();
  for (const DoctorItem& item : report.items)
    json.begin_object()
        .field("topic", std::string_view(item.topic))
        .field("level", to_string(item.level))
        .field("text", std::string_view(item.text))
        .field("mend", std::string_view(item.mend))
        .end_object();
  json.end_array().end_object();
  return json.str() + "\n";
}

}  // namespace

int run_command_doctor(Session& session, const Arguments& arguments) {
  FlagSet set("doctor [FLAGS]",
              "Tells in plain words what this machine can do, and how to mend what it cannot. Status 0 if a "
              "sandbox can run.");
  set.flag("--json", session.json, "Print one object");
  auto words = session.parse(set, arguments);
  if (!words) return words.error();
  if (!words->empty()) return session.usage_error(set, "doctor takes no words.");
  auto engine = session.engine();
  if (!engine) return session.fail_with(engine.error(), 1);
  auto report = (*engine)->doctor();
  if (!report) return session.fail_with(report.error(), 1);
  const int printed = session.print(session.json ? json_of(*report) : text_of(*report));
  return report->can_run ? printed : 1;
}

int run_command_version(Session& session, const Arguments& arguments) {
  FlagSet set("version [FLAGS]", "Prints the version.");
  set.flag("--json", session.json, "Print one object");
  auto words = session.parse(set, arguments);
  if (!words) return words.error();
  if (!session.json) return session.print("drupe " DRUPE_VERSION "\n");
  JsonWriter json;
  json.begin_object().field("version", DRUPE_VERSION).field("protocol", kProtocolVersion).end_object();
  return session.print(json.str() + "\n");
}

}  // namespace drupe::cli
