// JSON as the commands print it. Text that is not UTF-8 has its bad bytes escaped as \xNN text.
#pragma once

#include "base/json_writer.h"

namespace drupe::cli {

class JsonWriter : public drupe::JsonWriter {
 public:
  JsonWriter();
  void null() { raw("null"); }
};

}  // namespace drupe::cli
