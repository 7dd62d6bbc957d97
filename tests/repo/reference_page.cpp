#include "tests/repo/reference_page.h"

#include <vector>

#include "configs/command_flags.h"
#include "configs/flags.h"
#include "configs/knobs.h"
#include "deploy/cli/args/help_text.h"

namespace headroom {
namespace {

std::string joined(const std::vector<std::string>& words,
                   const std::string& around = "") {
  std::string text;
  for (const std::string& word : words) {
    text += (text.empty() ? "" : ", ") + around + word + around;
  }
  return text;
}

// A cell must not end its table.
std::string cell(const std::string& text) {
  std::string safe;
  for (const char c : text) safe += c == '|' ? "\\|" : std::string(1, c);
  return safe;
}

std::string row(const std::vector<std::string>& cells) {
  std::string line = "|";
  for (const std::string& text : cells) line += " " + cell(text) + " |";
  return line + "\n";
}

std::string head(const std::vector<std::string>& titles) {
  return "\n" + row(titles) +
         row(std::vector<std::string>(titles.size(), "---"));
}

std::string run_flags() {
  std::string text = head({"flag", "value", "key", "only for"});
  for (const configs::Flag& flag : configs::flags()) {
    text += row({joined(flag.spellings, "`"),
                 flag.value_name.empty() ? "" : "`" + flag.value_name + "`",
                 joined(flag.keys, "`"),
                 flag.in_train && flag.in_val ? ""
                 : flag.in_train              ? "train"
                                              : "val"});
  }
  return text;
}

// Flags that set no knob. One without a meaning is another spelling, or one
// that only headroom itself uses.
std::string other_flags() {
  std::string text = head({"flag", "value", "commands", "meaning"});
  for (const configs::CommandFlag& flag : configs::command_flags()) {
    for (const std::string& spelling : flag.spellings) {
      text += row({"`" + spelling + "`",
                   flag.value_name.empty() ? "" : "`" + flag.value_name + "`",
                   joined(flag.commands),
                   spelling == flag.spellings.front() ? flag.description : ""});
    }
  }
  return text;
}

std::string keys() {
  std::string text = head({"key", "default", "meaning"});
  for (const configs::Knob& knob : configs::knobs()) {
    std::string meaning = knob.description;
    if (!knob.choices.empty()) {
      meaning += " One of: " + joined(knob.choices) + ".";
    }
    const std::string value = configs::default_text(knob);
    text += row({"`" + knob.key + "`",
                 (value.empty() ? "" : "`" + value + "`") +
                     (knob.unit.empty() ? "" : " " + knob.unit),
                 meaning});
  }
  return text;
}

std::string commands() {
  std::string text = head({"command", "does"});
  for (const cli::CommandSummary& command : cli::command_summaries()) {
    text += row({"`headroom " + command.name + "`", command.summary});
  }
  return text;
}

const char kFixedTables[] = R"(
## Exit codes

| code | meaning |
| --- | --- |
| 0 | done |
| 2 | the request is wrong |
| 3 | no plan fits; the message says what would |
| 4 | the data |
| 5 | stopped at a committed step for want of a process or a resource; `headroom train --resume` goes on |
| 130 | interrupted; `headroom train --resume` goes on |

## Files of a run

| file | content |
| --- | --- |
| `plan.json` | the plan, and its predicted bytes |
| `run.yaml`, `model.yaml` | the whole configuration; the model's layers |
| `steps.jsonl` | one object for each committed step |
| `events.jsonl` | one object for each event: `event`, `step`, `rank`, `reason`, `time` |
| `results.csv`, `events.out.tfevents.*` | YOLOv5's columns, a line an epoch; the same for TensorBoard |
| `weights/best.safetensors`, `weights/last.safetensors` | averaged weights |
| `checkpoints/step-N/` | the state after N steps |
| `summary.json` | the metrics of `best`, and the run's figures |
| `data_report.txt` | what was wrong with the data |
| `logs/` | what the processes printed |

## Events

| event | says |
| --- | --- |
| `plan`, `generation` | a plan with its reason; a membership with its ranks |
| `join`, `agent_joins`, `restart`, `coordinator_restart`, `coordinator_pause` | a worker, an agent, a successor, or the coordinator took its place, or stood still |
| `loss_of_process`, `fault` | a process was lost; a fault was injected |
| `out_of_memory`, `memory_prediction`, `label_bound` | an attempt ran out of memory; a step or the boxes went beyond the prediction |
| `host_memory`, `device_memory`, `memory_trace` | memory of the host, of the device, and where a trace was written |
| `non_finite`, `loss_scale` | a loss or gradient was not finite; float16's scale was lowered |
| `data`, `autoanchor`, `weights`, `augment_on` | what a run found of its data, anchors and weights, and where samples are rendered |
| `checkpoint`, `checkpoints`, `validation`, `resume`, `run_over` | state was saved; weights were judged; a run went on or ended |
)";

}  // namespace

std::string reference_page() {
  return "# Reference\n\nThis page is printed from the declarations in the "
         "code.\n\n## Commands\n" +
         commands() + "\n## Flags that set keys\n" + run_flags() +
         "\n## Other flags\n" + other_flags() +
         "\n## Keys of `--config` files and `--set`\n" + keys() + kFixedTables;
}

}  // namespace headroom
