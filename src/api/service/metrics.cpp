#include "api/service/metrics.h"

#include <cstdio>

namespace drupe::api {
namespace {

std::string shown(double value) {
  std::array<char, 40> text{};
  std::snprintf(text.data(), text.size(), "%.9g", value);
  return text.data();
}

std::string label(std::string_view name, std::string_view value) {
  return std::string(name) + "=\"" + std::string(value) + "\"";
}

void write_head(std::string& out, std::string_view name, std::string_view help, std::string_view type) {
  out.append("# HELP ").append(name).append(" ").append(help).append("\n");
  out.append("# TYPE ").append(name).append(" ").append(type).append("\n");
}

}  // namespace

void Metrics::Histogram::add(double seconds) {
  std::size_t at = 0;
  while (at < kBounds.size() && seconds > kBounds.at(at)) ++at;
  ++counts.at(at);
  ++total;
  sum += seconds;
}

void Metrics::count_request(std::string_view method, std::string_view route, int status, double ms) {
  const std::string where = label("method", method) + "," + label("route", route);
  const std::scoped_lock lock(mutex_);
  ++requests_[where + "," + label("status", std::to_string(status))];
  durations_[where].add(ms / 1000);
}

void Metrics::count_error(std::string_view code) {
  const std::scoped_lock lock(mutex_);
  ++errors_[label("code", code)];
}

void Metrics::count_exec(std::string_view kind) {
  const std::scoped_lock lock(mutex_);
  ++execs_[label("kind", kind)];
}

void Metrics::observe_stage(std::string_view stage, double ms) {
  const std::scoped_lock lock(mutex_);
  stages_[label("stage", stage)].add(ms / 1000);
}

void Metrics::write_counters(std::string& out, std::string_view name, std::string_view help,
                             const std::map<std::string, std::uint64_t>& counters) {
  write_head(out, name, help, "counter");
  for (const auto& [labels, count] : counters)
    out.append(name).append("{").append(labels).append("} ").append(std::to_string(count)).append("\n");
}

void Metrics::write_histogram(std::string& out, std::string_view name, std::string_view help,
                              const std::map<std::string, Histogram>& histograms) {
  write_head(out, name, help, "histogram");
  for (const auto& [labels, histogram] : histograms) {
    std::uint64_t below = 0;
    for (std::size_t i = 0; i <= kBounds.size(); ++i) {
      below += histogram.counts.at(i);
      const std::string bound = i == kBounds.size() ? "+Inf" : shown(kBounds.at(i));
      out.append(name).append("_bucket{").append(labels).append(",le=\"").append(bound).append("\"} ");
      out.append(std::to_string(below)).append("\n");
    }
    out.append(name).append("_sum{").append(labels).append("} ").append(shown(histogram.sum)).append("\n");
    out.append(name).append("_count{").append(labels).append("} ");
    out.append(std::to_string(histogram.total)).append("\n");
  }
}

std::string Metrics::text(const std::vector<Gauge>& gauges) const {
  std::string out;
  {
    const std::scoped_lock lock(mutex_);
    write_counters(out, "druped_requests_total", "Requests that were answered.", requests_);
    write_counters(out, "druped_errors_total", "Refusals and failures by their code.", errors_);
    write_counters(out, "druped_execs_total", "Commands that were begun.", execs_);
    write_histogram(out, "druped_request_seconds", "From a request's head to the end of its answer.",
                    durations_);
    write_histogram(out, "druped_create_seconds", "Parts of creating a sandbox.", stages_);
  }
  for (const Gauge& gauge : gauges) {
    write_head(out, gauge.name, gauge.help, "gauge");
    for (const Gauge::Sample& sample : gauge.samples) {
      out.append(gauge.name);
      if (!sample.label.empty()) out.append("{").append(label(sample.label, sample.value)).append("}");
      out.append(" ").append(shown(sample.number)).append("\n");
    }
  }
  return out;
}

}  // namespace drupe::api
