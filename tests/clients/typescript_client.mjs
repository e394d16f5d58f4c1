// What users of the published TypeScript client do, one function each; run by test_client_typescript.py with Node.
import assert from "node:assert/strict";
import { CreateosSandboxClient, CreateosSandboxNotFoundError, CreateosSandboxValidationError } from "@nodeops-createos/sandbox";

const [baseUrl, apiKey, name] = process.argv.slice(2);
const client = new CreateosSandboxClient({ baseUrl, apiKey, timeout: 240_000 });
const shape = "s-1vcpu-256mb";

async function withSandbox(fields, work) {
  const sandbox = await client.createSandbox({ shape, ...fields });
  try {
    await work(sandbox);
  } finally {
    await sandbox.destroy();
  }
  await sandbox.waitUntilDestroyed();
}

const tests = {
  async hello_world() {
    assert.equal((await client.healthz()).up, true);
    assert.equal((await client.readyz()).ready, true);
    assert.ok((await client.whoami()).user_id);
    assert.ok((await client.listShapes()).some((one) => one.id === "s-4vcpu-4gb"));
    assert.ok((await client.listRootfs()).rootfs.includes("devbox:1"));
    await withSandbox({ rootfs: "devbox:1" }, async (sandbox) => {
      const { result } = await sandbox.runCommand("node", ["--version"]);
      assert.match(result.stdout, /^v\d+/);
      assert.ok((await client.listSandboxes()).some((one) => one.id === sandbox.id));
    });
  },

  async command_streaming() {
    await withSandbox({}, async (sandbox) => {
      const events = [];
      for await (const event of sandbox.streamCommand("sh", ["-c", "echo one; echo two >&2; exit 3"])) events.push(event);
      const last = events.at(-1);
      assert.equal(last.type, "exit");
      assert.equal(last.exitCode ?? last.exit_code, 3);
      assert.ok(JSON.stringify(events).includes("one\\n") && JSON.stringify(events).includes("two\\n"));
    });
  },

  async files() {
    await withSandbox({}, async (sandbox) => {
      const bytes = new Uint8Array(1_000_000).map((_, i) => i);
      await sandbox.files.upload("/workspace/a/b.bin", bytes);
      assert.deepEqual(new Uint8Array(await sandbox.files.download("/workspace/a/b.bin")), bytes);
      await assert.rejects(sandbox.files.download("/nothing"), CreateosSandboxNotFoundError);
    });
  },

  async pause_and_fork() {
    await withSandbox({}, async (base) => {
      await base.files.upload("/root/seed", "seed");
      await base.pause();
      await base.waitUntilPaused();
      const child = await base.fork({ start_paused: true });
      try {
        await child.waitUntilPaused();
        await child.resume();
        await child.waitUntilRunning();
        assert.equal((await child.runCommand("cat", ["/root/seed"])).result.stdout, "seed");
      } finally {
        await child.destroy();
      }
      await base.resume();
      await base.waitUntilRunning();
    });
  },

  async settings() {
    await withSandbox({ egress: ["240.0.0.0/4"], envs: { A: "1" }, auto_pause_after_seconds: 60 }, async (sandbox) => {
      assert.deepEqual((await sandbox.getEgress()).egress, ["240.0.0.0/4"]);
      await sandbox.setEgress(null);
      assert.deepEqual((await sandbox.getEgress()).egress, ["*"]);
      await sandbox.setAutoPause(null);
      assert.equal((await sandbox.refresh()).toJSON().auto_pause_after_seconds, undefined);
      const bandwidth = await sandbox.getBandwidth();
      assert.equal(bandwidth.quota_bytes, -1);
    });
  },

  async custom_template() {
    const dockerfile = "FROM nodeops/sandbox:debian\nRUN echo made > /etc/made\n";
    const template = await client.templates.create({ name: `typescript-${Date.now()}`, dockerfile });
    try {
      const events = [];
      for await (const event of client.templates.followLogs(template.id)) events.push(event);
      assert.equal(events.at(-1).status, "ready", JSON.stringify(events));
      assert.ok(events.some((event) => /RUN echo made/.test(event.line)));
      assert.equal((await client.templates.get(template.id, { include: "dockerfile" })).dockerfile, dockerfile);
      assert.match(await client.templates.logs(template.id), /ready/);
      await withSandbox({ rootfs: template.name }, async (sandbox) => {
        assert.equal((await sandbox.runCommand("cat", ["/etc/made"])).result.stdout, "made\n");
      });
    } finally {
      await client.templates.delete(template.id);
    }
    await assert.rejects(client.templates.get(template.id), CreateosSandboxNotFoundError);
  },

  async errors() {
    await assert.rejects(client.getSandbox("sb-00000000000000000000000000"), (error) => {
      assert.ok(error instanceof CreateosSandboxNotFoundError && /not found/.test(error.message));
      return true;
    });
    await assert.rejects(client.createSandbox({ shape: "nonsense" }), (error) => {
      assert.ok(error instanceof CreateosSandboxValidationError && /choices/.test(error.message), String(error));
      return true;
    });
  },
};

await tests[name]();
