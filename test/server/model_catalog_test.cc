#include "server/model_catalog.h"

#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "test/server/wire_request.h"

namespace headroom {
namespace {

// Version 3, as all that are served on paper.
CatalogEntry Entry(const std::string& name) {
  inference::ModelConfig config;
  config.set_name(name);
  return {ServedOnPaper(ToySpec(name)), std::make_shared<const inference::ModelConfig>(config)};
}

TEST_CASE("a model is found by its name, in the version that is served", "[model_catalog]") {
  ModelCatalog catalog;
  const CatalogEntry entry = Entry("P");
  catalog.Put(entry);
  catalog.Put(Entry("Q"));
  for (const char* const version : {"", "3"}) {
    const auto found = catalog.Find("P", version);
    REQUIRE(found.ok());
    CHECK(found->model == entry.model);
    CHECK(found->config == entry.config);
  }
  CHECK(catalog.Find("Q", "")->config->name() == "Q");
}

TEST_CASE("what is not served is not found, and its name is quoted", "[model_catalog]") {
  ModelCatalog catalog;
  catalog.Put(Entry("P"));
  struct Case {
    std::string name;
    std::string version;
    std::string text;
  };
  const std::vector<Case> cases = {
      {"", "", "no model is served by the name ''"},
      {"p", "", "no model is served by the name 'p'"},
      {"../P\n", "3", R"(no model is served by the name '../P\n')"},
      {"P", "2", "model 'P' is not served in version '2', but in version 3"},
      {"P", "03", "model 'P' is not served in version '03', but in version 3"},
      {"P", "latest", "model 'P' is not served in version 'latest', but in version 3"},
  };
  for (const Case& c : cases) {
    const absl::Status status = catalog.Find(c.name, c.version).status();
    CHECK(status.code() == absl::StatusCode::kNotFound);
    CHECK(status.message() == c.text);
  }
  CHECK(catalog.Find(std::string(100'000, '\xFF'), std::string(100'000, '\0')).status().message().size() < 1000);
  CHECK(catalog.Find("P", std::string(100'000, '\0')).status().message().size() < 1000);
}

TEST_CASE("a model that is put again takes the place of the old one, which workers know until it is forgotten", "[model_catalog]") {
  ModelCatalog catalog;
  const CatalogEntry old = Entry("P");
  const CatalogEntry replacement = Entry("P");
  CHECK(catalog.Put(old).model == nullptr);
  CHECK(*catalog.models().All() == ModelSet::Models{old.model});
  CHECK(catalog.Put(replacement).model == old.model);
  CHECK(catalog.Find("P", "")->model == replacement.model);
  CHECK(*catalog.models().All() == ModelSet::Models{old.model, replacement.model});
  catalog.Forget(*old.model);
  CHECK(*catalog.models().All() == ModelSet::Models{replacement.model});
  CHECK(catalog.Served().size() == 1);
}

TEST_CASE("a model that is taken out is not found any more, and workers know it until it is forgotten", "[model_catalog]") {
  ModelCatalog catalog;
  const CatalogEntry entry = Entry("P");
  catalog.Put(entry);
  CHECK(catalog.Take("Q").model == nullptr);
  CHECK(catalog.Take("P").model == entry.model);
  CHECK_FALSE(catalog.Find("P", "").ok());
  CHECK(catalog.Served().empty());
  CHECK(catalog.models().All()->size() == 1);
  catalog.Forget(*entry.model);
  CHECK(catalog.models().All()->empty());
  CHECK(catalog.Take("P").model == nullptr);
}

}  // namespace
}  // namespace headroom
