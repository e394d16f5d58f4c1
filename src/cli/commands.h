// All commands. Each takes the arguments after its own name and returns the exit status.
#pragma once

#include "cli/session.h"

namespace drupe::cli {

// command_run.cpp
int run_command_run(Session& session, const Arguments& arguments);
int run_command_create(Session& session, const Arguments& arguments);
// command_exec.cpp
int run_command_exec(Session& session, const Arguments& arguments);
int run_command_attach(Session& session, const Arguments& arguments);
// command_life.cpp
int run_command_start(Session& session, const Arguments& arguments);
int run_command_stop(Session& session, const Arguments& arguments);
int run_command_restart(Session& session, const Arguments& arguments);
int run_command_kill(Session& session, const Arguments& arguments);
int run_command_wait(Session& session, const Arguments& arguments);
int run_command_rm(Session& session, const Arguments& arguments);
int run_command_rename(Session& session, const Arguments& arguments);
// command_memory.cpp
int run_command_pause(Session& session, const Arguments& arguments);
int run_command_resume(Session& session, const Arguments& arguments);
int run_command_fork(Session& session, const Arguments& arguments);
int run_command_prune(Session& session, const Arguments& arguments);
// command_list.cpp
int run_command_ps(Session& session, const Arguments& arguments);
int run_command_inspect(Session& session, const Arguments& arguments);
// command_stats.cpp
int run_command_stats(Session& session, const Arguments& arguments);
int run_command_top(Session& session, const Arguments& arguments);
// command_logs.cpp
int run_command_logs(Session& session, const Arguments& arguments);
// command_net.cpp
int run_command_net(Session& session, const Arguments& arguments);
// command_network.cpp
int run_command_network(Session& session, const Arguments& arguments);
// command_cp.cpp
int run_command_cp(Session& session, const Arguments& arguments);
// command_images.cpp
int run_command_pull(Session& session, const Arguments& arguments);
int run_command_load(Session& session, const Arguments& arguments);
int run_command_images(Session& session, const Arguments& arguments);
int run_command_rmi(Session& session, const Arguments& arguments);
int run_command_tag(Session& session, const Arguments& arguments);
int run_command_image(Session& session, const Arguments& arguments);
int run_command_warm(Session& session, const Arguments& arguments);
// command_doctor.cpp
int run_command_doctor(Session& session, const Arguments& arguments);
int run_command_version(Session& session, const Arguments& arguments);

}  // namespace drupe::cli
