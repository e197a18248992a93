#include "net/asio.h"

#include <asio/impl/src.hpp>
